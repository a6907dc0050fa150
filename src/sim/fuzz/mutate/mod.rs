//! Inputs made from other inputs.
//!
//! A mutation knows the form of what it changes: fields of a message move, repeat, vanish and take the values at the ends
//! of their ranges; words of a text do the same. So most of what comes out is nearly right, and gets past the first check.
//! All of it is drawn from one seed.
//!
//! Own code rather than a crate: what mutates values of Rust types (mutatis, bolero's generators) does not know
//! messages by their bytes, and what mutates bytes is the smallest part here.

mod bytes;
mod message;
mod text;

use super::targets::Form;
use fastrand::Rng;

/// The longest input. Corpora are small, and repetition should not fill the memory by itself.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// A mutation of `input`. `donor` is another input of the same target, to take parts from.
pub(crate) fn mutate(form: Form, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = match form {
        Form::Message => message::mutate(input, donor, rng),
        Form::Named => {
            let ((name, body), (other, donor)) = (split_name(input), split_name(donor));
            // Now and then a message under the name of another.
            let name = if rng.u8(..) < 8 { other } else { name };
            let mut out = name.to_vec();
            out.push(b'\n');
            out.extend(message::mutate(body, donor, rng));
            out
        }
        Form::Text => text::mutate(input, donor, rng),
        Form::Bytes => bytes::mutate(input, donor, rng),
    };
    out.truncate(MAX_BYTES);
    if let Form::Message | Form::Named = form {
        let ((before, homes), (name, body)) = (parts(form, input), parts(form, &out));
        // Under another name the same fields mean something else.
        let homes = if name == before { homes } else { &[] };
        let start = out.len() - body.len();
        message::keep_secrets_home(homes, &mut out[start..]);
    }
    out
}

/// The first line, and what follows it.
pub(crate) fn split_name(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|b| *b == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &[]),
    }
}

/// The name of a message, where inputs of this form have one, and the message.
fn parts(form: Form, input: &[u8]) -> (&[u8], &[u8]) {
    if form == Form::Named { split_name(input) } else { (&[], input) }
}

/// Smaller inputs to try in place of this one, the smallest first.
pub(crate) fn smaller(form: Form, input: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    if let Form::Message | Form::Named = form {
        let (name, body) = parts(form, input);
        for body in message::smaller(body) {
            let mut whole = name.to_vec();
            if form == Form::Named {
                whole.push(b'\n');
            }
            whole.extend(body);
            out.push(whole);
        }
    }
    out.extend(bytes::smaller(input));
    out
}

/// How many changes at once: one mostly, so that most of what was right stays so.
fn few(rng: &mut Rng) -> usize {
    1 + rng.u8(..).leading_zeros() as usize / 2
}

/// Numbers at which something changes.
fn boundary(rng: &mut Rng) -> u64 {
    const AT: [u64; 22] = [
        0,
        1,
        2,
        3,
        63,
        64,
        127,
        128,
        255,
        256,
        1_023,
        1_024,
        1_000_000,
        1 << 20,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        (1 << 53) - 1,
        1 << 53,
        (1 << 63) - 1,
        u64::MAX,
    ];
    let at = AT[rng.usize(..AT.len())];
    match rng.u8(..4) {
        0 => at.wrapping_add(1),
        1 => at.wrapping_sub(1),
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::judge::SECRET;

    #[test]
    fn a_seed_gives_the_same_inputs_again() {
        for form in [Form::Message, Form::Named, Form::Text, Form::Bytes] {
            let run = |seed| -> Vec<Vec<u8>> {
                let mut rng = Rng::with_seed(seed);
                (0..200)
                    .map(|_| mutate(form, b"name\n\x08\x01\x12\x02ab", b"x\n\x1a\x02\x08\x07", &mut rng))
                    .collect()
            };
            assert_eq!(run(7), run(7));
            assert_ne!(run(7), run(8));
        }
    }
    #[test]
    fn a_secret_stays_where_the_input_has_it() {
        // Field 3 holds the secret, field 1 a name; the donor has the name of another message.
        let input = [b"one\n\x0a\x02ab\x1a\x09".as_slice(), SECRET.as_bytes()].concat();
        let other = [b"two\n\x0a\x02ab\x1a\x09".as_slice(), SECRET.as_bytes()].concat();
        let has = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
        let mut rng = Rng::with_seed(1);
        let (mut kept, mut moved) = (0, 0);
        for _ in 0..20_000 {
            let out = mutate(Form::Named, &input, &other, &mut rng);
            let (name, mut body) = split_name(&out);
            moved += usize::from(has(&out.to_ascii_lowercase()) && !has(&out));
            if !has(&out) {
                continue;
            }
            assert_eq!(name, b"one", "{out:?}");
            kept += 1;
            while let Some((tag, length)) =
                body.first_chunk().map(|[tag, length]| (*tag, usize::from(*length)))
            {
                if tag & 7 != 2 || length >= 0x80 || body.len() < 2 + length {
                    break;
                }
                assert!(tag == 0x1a || !has(&body[2..2 + length]), "{out:?}");
                body = &body[2 + length..];
            }
        }
        assert!(kept > 5_000 && moved > 500, "{kept} kept it, {moved} had it somewhere else");
    }
}
