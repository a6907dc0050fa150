//! The part of JSON that a trace is written in: objects, lists, texts, `true` and `false`, and whole numbers from 0.
//! Each value knows where it stands, so that an error can name the place. A name may stand in an object once.

use std::collections::BTreeSet;

/// An object in a list in an object is as deep as any trace needs.
const MAX_DEPTH: usize = 4;

/// Something that is not as it should be, and the byte at which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn new(at: usize, what: impl Into<String>) -> Fault {
        Fault { at, what: what.into() }
    }
}

/// A value and the byte at which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Node>),
    /// Names, with the bytes at which they begin, in the order of the text.
    Object(Vec<(usize, String, Node)>),
}

impl Value {
    /// What it is, for an error.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

/// Reads one value, and nothing after it.
pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let mut parser = Parser { text, at: 0 };
    let node = parser.value(0)?;
    parser.space();
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.expected("the end of the line")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expected(&self, what: &str) -> Fault {
        let found = match self.text[self.at..].chars().next() {
            Some(c) => format!("found {c:?}"),
            None => "the line ends".to_owned(),
        };
        Fault::new(self.at, format!("expected {what}, and {found}"))
    }

    fn take(&mut self, byte: u8, what: &str) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return Err(self.expected(what));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Node, Fault> {
        self.space();
        let at = self.at;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                return Err(Fault::new(at, format!("nested more than {MAX_DEPTH} deep")));
            }
            Some(b'{') => self.object(depth + 1)?,
            Some(b'[') => self.list(depth + 1)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'0'..=b'9' | b'-') => Value::Number(self.number()?),
            _ => {
                let words =
                    [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)];
                let word = words.into_iter().find(|(word, _)| self.text[at..].starts_with(word));
                let (word, value) = word.ok_or_else(|| self.expected("a value"))?;
                self.at += word.len();
                value
            }
        };
        Ok(Node { at, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        let (mut fields, mut names) = (Vec::new(), BTreeSet::new());
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(fields));
        }
        loop {
            self.space();
            let at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.expected("a name in quotes"));
            }
            let name = self.string()?;
            if !names.insert(name.clone()) {
                return Err(Fault::new(at, format!("{} stands there twice", quoted(&name))));
            }
            self.space();
            self.take(b':', "a `:`")?;
            fields.push((at, name, self.value(depth)?));
            self.space();
            if self.peek() != Some(b',') {
                self.take(b'}', "a `,` or the `}` of the object")?;
                return Ok(Value::Object(fields));
            }
            self.at += 1;
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut list = Vec::new();
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(list));
        }
        loop {
            list.push(self.value(depth)?);
            self.space();
            if self.peek() != Some(b',') {
                self.take(b']', "a `,` or the `]` of the list")?;
                return Ok(Value::List(list));
            }
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<u64, Fault> {
        let at = self.at;
        let rest = &self.text[at..];
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let digits = &rest[..end.unwrap_or(rest.len())];
        self.at += digits.len();
        let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
        if !whole || (digits.len() > 1 && digits.starts_with('0')) {
            return Err(Fault::new(at, format!("expected a whole number from 0, and found {}", cut(digits))));
        }
        digits.parse().map_err(|_| Fault::new(at, format!("{} is too large", cut(digits))))
    }

    fn string(&mut self) -> Result<String, Fault> {
        let began = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') else {
                return Err(Fault::new(began, "this text has no end: its second `\"` is missing"));
            };
            text.push_str(&rest[..end]);
            self.at += end;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(self.expected("no control character in a text")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let began = self.at;
        let wrong = || Fault::new(began, "this is no escape of JSON");
        self.at += 1;
        let plain = match self.peek().ok_or_else(wrong)? {
            b'u' => {
                self.at += 1;
                let first = self.unit().ok_or_else(wrong)?;
                let units = if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    vec![first, self.unit().ok_or_else(wrong)?]
                } else {
                    vec![first]
                };
                let mut chars = char::decode_utf16(units);
                return match (chars.next(), chars.next()) {
                    (Some(Ok(c)), None) => Ok(c),
                    _ => Err(wrong()),
                };
            }
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            c @ (b'"' | b'\\' | b'/') => c.into(),
            _ => return Err(wrong()),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let unit = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let unit = unit.then(|| u16::from_str_radix(digits, 16).ok())??;
        self.at += 4;
        Some(unit)
    }
}

/// The beginning of a text.
fn cut(text: &str) -> String {
    const LONGEST: usize = 64;
    let mut chars = text.chars();
    let mut cut: String = chars.by_ref().take(LONGEST).collect();
    if chars.next().is_some() {
        cut.push_str("...");
    }
    cut
}

/// The beginning of a text, in quotes and with nothing in it that a terminal would obey.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (usize, String) {
        let fault = parse(text).expect_err(text);
        (fault.at, fault.what)
    }

    #[test]
    fn values_are_read_with_their_places() {
        let node = parse(r#" {"a": [1, true], "ä\u00e4\n\ud83d\ude00": "x"} "#).unwrap();
        let Value::Object(fields) = node.value else { panic!() };
        let names: Vec<(usize, &str, usize)> =
            fields.iter().map(|(at, name, node)| (*at, name.as_str(), node.at)).collect();
        assert_eq!(names, [(2, "a", 7), (18, "ää\n\u{1f600}", 44)]);
        assert_eq!(parse("18446744073709551615").unwrap().value, Value::Number(u64::MAX));
        assert_eq!(parse("{}").unwrap().value, Value::Object(Vec::new()));
        assert_eq!(parse("[]").unwrap().value, Value::List(Vec::new()));
    }

    #[test]
    fn what_is_no_json_is_refused_where_it_stands() {
        for (text, at, part) in [
            ("", 0, "expected a value, and the line ends"),
            (r#"{"a" 1}"#, 5, "expected a `:`, and found '1'"),
            (r#"{"a": 1 "b": 2}"#, 8, "expected a `,` or the `}`"),
            (r#"{"a": 1} x"#, 9, "the end of the line"),
            (r#"{"a": 1, "a": 2}"#, 9, "\"a\" stands there twice"),
            (r#"{"a": -1}"#, 6, "whole number from 0, and found -1"),
            (r#"{"a": 1.5}"#, 6, "found 1.5"),
            (r#"{"a": 01}"#, 6, "found 01"),
            (r#"{"a": 18446744073709551616}"#, 6, "too large"),
            (r#"{"a": "b}"#, 6, "has no end"),
            (r#"{"a": "\x"}"#, 7, "no escape"),
            (r#"{"a": "\ud800"}"#, 7, "no escape"),
            (r#"{"a": "\u12"#, 7, "no escape"),
            ("[[[[[1]]]]]", 4, "nested more than 4 deep"),
            ("{\"a\": \"\t\"}", 7, "control character"),
            ("{a: 1}", 1, "a name in quotes"),
            ("tru", 0, "expected a value, and found 't'"),
        ] {
            let (found_at, what) = fault(text);
            assert!(found_at == at && what.contains(part), "{text}: {found_at} {what}");
        }
    }

    #[test]
    fn f021_what_is_quoted_is_short_and_tame() {
        assert_eq!(quoted("a\u{1b}[2J"), "\"a\\u{1b}[2J\"");
        assert!(quoted(&"x".repeat(1_000)).len() < 80 && quoted(&"x".repeat(1_000)).ends_with("...\""));
    }
}
