//! Finds the program that the children run, as a shell would, so that a mistake is told before anything is joined.

use crate::exit::{Exit, Failed};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// What stands at a path.
enum Found {
    Program,
    /// Something that cannot be run.
    Other,
    Nothing,
}

fn look(path: &Path) -> Found {
    match std::fs::metadata(path) {
        Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => Found::Program,
        Ok(_) => Found::Other,
        Err(_) => Found::Nothing,
    }
}

/// Fails when there is no such program, or it cannot be executed. `path` is where names without a slash are looked for.
pub(super) fn check(program: &OsStr, path: Option<&OsStr>) -> Result<(), Failed> {
    let named = Path::new(program);
    let places: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![named.to_path_buf()]
    } else {
        std::env::split_paths(path.unwrap_or_default()).map(|dir| dir.join(named)).collect()
    };
    let mut other = None;
    for place in places {
        match look(&place) {
            Found::Program => return Ok(()),
            Found::Other => other = other.or(Some(place)),
            Found::Nothing => {}
        }
    }
    let shown = program.display();
    Err(match other {
        Some(place) => Failed::Error {
            code: "not_executable",
            message: format!(
                "{} cannot be executed: it is no program, or has no permission to be one",
                place.display()
            ),
            exit: Exit::NotExecutable,
        },
        None => Failed::Error {
            code: "no_program",
            message: format!("{shown}: there is no such program; nothing was joined"),
            exit: Exit::NoProgram,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(program: &str, path: Option<&OsStr>) -> Option<Exit> {
        match check(OsStr::new(program), path) {
            Ok(()) => None,
            Err(Failed::Error { exit, .. }) => Some(exit),
            Err(Failed::PipeClosed) => panic!("it is an error"),
        }
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, tool) = (dir.path().join("plain"), dir.path().join("tool"));
        std::fs::write(&plain, "").unwrap();
        std::fs::write(&tool, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = Some(dir.path().as_os_str());
        assert_eq!(exit("tool", path), None);
        assert_eq!(exit("tool", None), Some(Exit::NoProgram));
        assert_eq!(exit("plain", path), Some(Exit::NotExecutable));
        assert_eq!(exit(tool.to_str().unwrap(), None), None);
        assert_eq!(exit(plain.to_str().unwrap(), None), Some(Exit::NotExecutable));
        assert_eq!(exit(dir.path().to_str().unwrap(), None), Some(Exit::NotExecutable));
        assert_eq!(exit("./nowhere/at/all", path), Some(Exit::NoProgram));
        assert_eq!(exit("", path), Some(Exit::NotExecutable), "the folder itself");
    }
}
