//! Compiles the contract in `proto/` in pure Rust: no protoc is needed, or looked for.

use std::path::{Path, PathBuf};

/// A symlink in the repository, a plain directory in the published package.
const ROOT: &str = "proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}/ringfence/v1");

    let files: Vec<&str> = [
        "ringfence/v1/ringfence.proto",
        "ringfence/v1/raft.proto",
        "ringfence/v1/formation.proto",
        "ringfence/v1/state.proto",
    ]
    .into_iter()
    .filter(|file| Path::new(ROOT).join(file).exists())
    .collect();
    let mut compiler = protox::Compiler::new([ROOT])?;
    // Reflection shows the comments of the contract.
    compiler.include_imports(true).include_source_info(true).open_files(&files)?;

    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("ringfence_descriptor.bin"), compiler.encode_file_descriptor_set())?;

    tonic_prost_build::configure()
        .bytes(".")
        // The SDK uses clients only: the server's half is behind the feature `server`.
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
