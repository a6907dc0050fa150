//! Files that are not as they were left.

use crate::subject::{Place, cluster, texts, token};
use ringfence_fence::log::{FencedLog, MAX_PAYLOAD};
use ringfence_fence::{FenceError, FenceErrorKind, FencingToken};
use std::slice::from_ref;

struct Story {
    place: Place,
    log: FencedLog,
    owner: FencingToken,
    /// Where the entries end.
    ends: Vec<u64>,
}

fn story() -> Story {
    let place = Place::new();
    let mut log = place.open();
    let owner = token("prod/orders/17@34");
    log.raise(&owner).unwrap();
    let ends = ["one", "two", "three"].map(|text| log.append(from_ref(&owner), text.as_bytes()).unwrap());
    Story { place, log, owner, ends: ends.to_vec() }
}

fn flip(place: &Place, at: u64) {
    let mut bytes = place.bytes();
    bytes[at as usize] ^= 1;
    std::fs::write(place.path(), bytes).unwrap();
}

#[test]
fn t48_a_torn_tail_is_cut_off_by_the_next_writer_and_nothing_else_is_lost() {
    let Story { place, mut log, owner, ends } = story();
    let whole = place.bytes();
    for cut in ends[1] + 1..ends[2] {
        std::fs::write(place.path(), &whole[..cut as usize]).unwrap();
        let mut later = place.open();
        assert_eq!(texts(&mut later), ["one", "two"]);
        later.append(from_ref(&owner), b"four").unwrap();
        assert_eq!(texts(&mut later), ["one", "two", "four"]);
    }
    // The handle that had seen the third entry does not take this for its log.
    let error = log.append(from_ref(&owner), b"five").unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{error}");
}

#[test]
fn t48_a_torn_tail_whose_payload_looks_like_records_is_torn_all_the_same() {
    let Story { place, mut log, owner, ends } = story();
    // A log that is shipped within a log.
    let end = log.append(from_ref(&owner), &place.bytes()).unwrap();
    let whole = place.bytes();
    for cut in [end - 1, (end + ends[2]) / 2] {
        std::fs::write(place.path(), &whole[..cut as usize]).unwrap();
        let mut later = place.open();
        later.append(from_ref(&owner), b"four").unwrap();
        assert_eq!(texts(&mut later), ["one", "two", "three", "four"]);
    }
}

#[test]
fn t48_damage_in_the_middle_is_refused_with_file_and_byte_and_nothing_is_changed() {
    for at_the_end in [false, true] {
        let Story { place, owner, ends, .. } = story();
        let damaged = if at_the_end { ends[1] } else { ends[0] };
        flip(&place, damaged + 40);
        let before = place.bytes();
        let error = FencedLog::open(place.path(), &cluster("prod")).unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Corrupt);
        let text = error.to_string();
        let path = place.path().display().to_string();
        assert!(text.contains(&path) && text.contains(&format!("byte {damaged}")), "{text}");
        assert_eq!(place.bytes(), before);

        // An operator has looked at it.
        let elsewhere = FencedLog::cut_damage(place.path(), damaged + 1).unwrap_err();
        assert_eq!(elsewhere.kind(), FenceErrorKind::Unfit);
        let aside = FencedLog::cut_damage(place.path(), damaged).unwrap();
        assert_eq!(std::fs::read(aside).unwrap(), before[damaged as usize..]);
        let mut log = place.open();
        let left: &[&str] = if at_the_end { &["one", "two"] } else { &["one"] };
        assert_eq!(texts(&mut log), left);
        log.append(from_ref(&owner), b"goes on").unwrap();
        assert_eq!(FencedLog::cut_damage(place.path(), damaged).unwrap_err().kind(), FenceErrorKind::Unfit);
    }
}

#[test]
fn t48_damage_under_an_open_handle_is_found_by_whoever_comes_and_a_cut_file_by_the_handle() {
    let Story { place, mut log, owner, ends } = story();
    let file = std::fs::File::options().write(true).open(place.path()).unwrap();
    file.set_len(ends[1]).unwrap();
    for error in [log.append(from_ref(&owner), b"v").unwrap_err(), log.raise(&owner).unwrap_err()] {
        assert_eq!(error.kind(), FenceErrorKind::Corrupt);
        assert!(error.to_string().contains("it was cut"), "{error}");
    }
    file.set_len(0).unwrap();
    assert!(matches!(FencedLog::open(place.path(), &cluster("prod")), Err(FenceError::NotInstalled)));
    std::fs::write(place.path(), b"something else entirely, and longer than a head").unwrap();
    let error = FencedLog::open(place.path(), &cluster("prod")).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Corrupt);
}

/// Restored with `cp`, which writes over the file that others have open.
#[test]
fn t48_t15_a_copy_that_was_written_over_the_log_and_grew_again_takes_no_record_behind_what_is_gone() {
    for grown in ["three", "other", "longer than before"] {
        let Story { place, mut log, owner, ends } = story();
        std::fs::write(place.path(), &place.bytes()[..ends[1] as usize]).unwrap();
        let mut later = place.open();
        let end = later.append(from_ref(&owner), grown.as_bytes()).unwrap();
        assert_eq!(end == ends[2], grown.len() == "three".len());
        if grown == "three" {
            // What is as it was is the log.
            log.append(from_ref(&owner), b"four").unwrap();
            assert_eq!(texts(&mut later), ["one", "two", "three", "four"]);
            continue;
        }
        let before = place.bytes();
        for error in [log.append(from_ref(&owner), b"late").unwrap_err(), log.raise(&owner).unwrap_err()] {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains("Open it again"), "{error}");
        }
        assert_eq!(place.bytes(), before);
        place.open().append(from_ref(&owner), b"after").unwrap();
    }
}

#[test]
fn t15_another_file_in_the_place_of_the_log_accepts_nobody_until_they_have_raised_in_it() {
    let Story { place, mut log, owner, .. } = story();
    let copy = place.dir().join("copy");
    std::fs::copy(place.path(), &copy).unwrap();
    let new = token("prod/orders/17@35");
    let mut next = place.open();
    next.raise(&new).unwrap();
    // Restored: the copy knows nothing of epoch 35.
    std::fs::rename(&copy, place.path()).unwrap();
    assert!(matches!(log.append(from_ref(&owner), b"late"), Err(FenceError::Replaced { .. })));
    assert!(matches!(next.append(from_ref(&new), b"35"), Err(FenceError::Replaced { .. })));
    next.raise(&new).unwrap();
    next.append(from_ref(&new), b"35").unwrap();
    assert!(matches!(log.append(from_ref(&owner), b"late"), Err(FenceError::Replaced { .. })));
    assert!(matches!(log.raise(&owner), Err(FenceError::Fenced(_))));
    assert!(matches!(next.append(&[token("prod/orders/18@1")], b"x"), Err(FenceError::Replaced { .. })));
    assert_eq!(texts(&mut next), ["one", "two", "three", "35"]);
    std::fs::remove_file(place.path()).unwrap();
    assert!(matches!(next.append(from_ref(&new), b"x"), Err(FenceError::NotInstalled)));
}

/// Between the check and the answer, at the worst moment.
#[test]
fn t15_an_append_to_a_file_that_is_replaced_meanwhile_is_unknown_and_a_raise_goes_to_the_new_one() {
    let Story { place, mut log, owner, .. } = story();
    let copy = place.dir().join("copy");
    std::fs::copy(place.path(), &copy).unwrap();
    let appended = log.append_with(from_ref(&owner), || {
        std::fs::rename(&copy, place.path()).unwrap();
        vec![b"to nowhere".to_vec()]
    });
    assert_eq!(appended.unwrap_err().kind(), FenceErrorKind::Store);
    assert!(matches!(log.append(from_ref(&owner), b"v"), Err(FenceError::Replaced { .. })));
    log.raise(&owner).unwrap();
    log.append(from_ref(&owner), b"four").unwrap();
    assert_eq!(texts(&mut place.open()), ["one", "two", "three", "four"]);
}

/// The control, and the limit: a process that comes after the restore cannot know of it.
#[test]
fn t57_t15_a_process_that_has_seen_nothing_believes_the_copy() {
    let Story { place, owner, .. } = story();
    let copy = place.bytes();
    place.open().raise(&token("prod/orders/17@35")).unwrap();
    std::fs::write(place.path(), copy).unwrap();
    place.open().append(from_ref(&owner), b"late").unwrap();
}

/// Writing past the fence breaks the chain, so it does not stay unseen.
#[test]
fn t48_records_that_are_appended_without_asking_are_found() {
    let Story { place, mut log, owner, ends } = story();
    let bytes = place.bytes();
    let again = [&bytes[..], &bytes[ends[1] as usize..ends[2] as usize]].concat();
    std::fs::write(place.path(), again).unwrap();
    assert_eq!(log.append(from_ref(&owner), b"v").unwrap_err().kind(), FenceErrorKind::Corrupt);
}

/// A log that was never finished at its end, and may not be written, is read all the same.
#[test]
fn who_may_only_read_is_shown_the_entries_and_changes_nothing() {
    let Story { place, .. } = story();
    place.tear();
    let mut permissions = std::fs::metadata(place.path()).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(place.path(), permissions).unwrap();
    let before = place.bytes();
    let read = |name| {
        let mut texts = Vec::new();
        let read = FencedLog::read_only(place.path(), &cluster(name), |entry| {
            texts.push(String::from_utf8(entry.payload).unwrap());
        });
        read.map(|()| texts)
    };
    assert_eq!(read("prod").unwrap(), ["one", "two", "three"]);
    assert!(matches!(read("test"), Err(FenceError::WrongCluster { .. })));
    assert_eq!(place.bytes(), before);
    let none = FencedLog::read_only(place.dir().join("none"), &cluster("prod"), |_| ());
    assert!(matches!(none, Err(FenceError::NotInstalled)));
}

#[test]
fn an_entry_of_the_largest_size_fits_and_a_larger_one_is_unfit() {
    let Story { place, mut log, owner, .. } = story();
    log.append(from_ref(&owner), &vec![7; MAX_PAYLOAD]).unwrap();
    log.append(from_ref(&owner), b"after it").unwrap();
    let before = place.bytes().len();
    let error = log.append(from_ref(&owner), &vec![7; MAX_PAYLOAD + 1]).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit);
    assert_eq!(place.bytes().len(), before);
    let mut sizes = Vec::new();
    place.open().read(|entry| sizes.push(entry.payload.len())).unwrap();
    assert_eq!(sizes, [3, 3, 5, MAX_PAYLOAD, 8]);
}
