//! The corpus holds, and the fuzzer finds what is there to be found.

use super::targets::Form;
use super::targets::calls::METHODS;
use super::{Fire, Target, Verdict, all, judge, read, seeds};
use prost::Message as _;
use ringfence_api::v1;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

#[test]
fn f096_nothing_fails_on_any_input_that_was_ever_kept() {
    for target in all() {
        let kept = read(&corpus(), target.name).unwrap();
        let mut reads = 0;
        for kept in kept {
            match judge(&target, &kept.bytes) {
                Verdict::Failed(why) => panic!("{}: {why}", kept.path.display()),
                Verdict::Read => reads += 1,
                Verdict::Refused(_) => {}
            }
        }
        assert!(reads > 0, "nothing in the corpus of {} is read, so no mutation gets far", target.name);
    }
}

#[test]
fn what_the_product_writes_is_in_the_corpus_and_is_read() {
    for target in all() {
        let kept = read(&corpus(), target.name).unwrap();
        for (name, bytes) in seeds::of(target.name) {
            let kept = kept.iter().find(|kept| kept.path.ends_with(&name));
            assert!(kept.is_some(), "{}/{name} is missing: run the test write_corpus", target.name);
            if name.starts_with("refused-") {
                let judged = judge(&target, &bytes);
                assert!(matches!(judged, Verdict::Refused(_)), "{}/{name}: {judged:?}", target.name);
            } else if target.name != "apply" && target.name != "data-dir" {
                assert_eq!(judge(&target, &bytes), Verdict::Read, "{}/{name}", target.name);
            }
        }
    }
}

/// Of what a client may call nothing is left out.
#[test]
fn every_method_of_the_public_contract_is_called() {
    let set = prost_types::FileDescriptorSet::decode(v1::FILE_DESCRIPTOR_SET).unwrap();
    let of_contract = set.file.iter().filter(|file| file.package() == "ringfence.v1");
    let services = of_contract.flat_map(|file| &file.service);
    let public = services.filter(|service| !["Formation", "Raft"].contains(&service.name()));
    let methods = public.flat_map(|service| {
        service.method.iter().map(move |method| format!("{}/{}", service.name(), method.name()))
    });
    let methods: BTreeSet<String> = methods.collect();
    let called: BTreeSet<String> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(called, methods);
}

#[test]
#[ignore = "writes the files of the corpus that are missing"]
fn write_corpus() {
    for target in all() {
        let dir = corpus().join(target.name);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in seeds::of(target.name) {
            let file = dir.join(name);
            if !file.exists() {
                std::fs::write(file, bytes).unwrap();
            }
        }
    }
}

/// A few thousand inputs for each target whose inputs cost no more than that.
#[test]
fn f096_a_short_run_of_every_target_finds_nothing() {
    let seed = 1;
    for target in all() {
        let shots = match target.name {
            "data-dir" => 5,
            "calls" => 40,
            _ => 500,
        };
        let corpus = read(&corpus(), target.name).unwrap().into_iter().map(|kept| kept.bytes).collect();
        let mut fire = Fire::new(&target, corpus, seed);
        for _ in 0..shots {
            if let Some(failure) = fire.shoot() {
                panic!("{} with seed {seed}: {} of {:?}", target.name, failure.why, failure.input);
            }
        }
    }
}

/// A reader with a mistake in it, which the fuzzer must find.
fn control(read: fn(&[u8]) -> Result<(), String>) -> Vec<u8> {
    let target = Target { name: "control", form: Form::Message, read, base: 64 << 10, per_byte: 1 << 10 };
    let held = v1::Held { keyspace: "orders".to_owned(), partition: 17, epoch: 42, ..Default::default() };
    let wire = v1::Assignment { revision: 9, held: vec![held.clone(), held], ..Default::default() };
    let seed = 1;
    let mut fire = Fire::new(&target, vec![wire.encode_to_vec()], seed);
    let failure = (0..20_000).find_map(|_| fire.shoot());
    failure.unwrap_or_else(|| panic!("not found with seed {seed}")).input
}

#[test]
fn control_a_sum_that_overflows_is_found_and_made_small() {
    let input = control(|input| {
        let wire = v1::Assignment::decode(input).map_err(|e| e.to_string())?;
        wire.held.iter().map(|held| held.epoch).try_fold(0, u64::checked_add).expect("it fits");
        Ok(())
    });
    assert!(input.len() <= 30, "{input:?}");
}

#[test]
fn control_a_length_that_is_believed_is_found() {
    control(|input| {
        let wire = v1::Assignment::decode(input).map_err(|e| e.to_string())?;
        let length = usize::try_from(wire.revision).unwrap_or(0).min(1 << 30);
        drop(Vec::<u8>::with_capacity(length));
        Ok(())
    });
}

#[test]
fn control_a_field_that_is_lost_is_found() {
    control(|input| {
        let wire = v1::Assignment::decode(input).map_err(|e| e.to_string())?;
        let held = wire.held.iter().map(|held| v1::Held { draining: false, ..held.clone() }).collect();
        let again = v1::Assignment { held, ..wire.clone() };
        assert_eq!(again, wire, "what is written is not what was read");
        Ok(())
    });
}
