//! A server of the test's own that speaks as much S3 as the fence needs: a sound one, and ones with a flaw that servers
//! in the field have. Its ETags are digests of the content, as S3's are.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

/// How it treats conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Sound,
    /// It takes the header and puts.
    IgnoresIfMatch,
    IgnoresBoth,
    /// It looks, lets go, and puts.
    ChecksThenWrites,
    /// It shows in no list what was put since it was made.
    ListsNothing,
}

/// How long a request that looked waits for a second one to look too.
const GAP: Duration = Duration::from_millis(200);

struct Object {
    content: Vec<u8>,
    put_at: SystemTime,
}

struct Shared {
    manner: Manner,
    objects: Mutex<BTreeMap<String, Object>>,
    in_the_gap: Mutex<usize>,
    came: Condvar,
    over: AtomicBool,
}

pub(crate) struct Dumb {
    port: u16,
    shared: Arc<Shared>,
}

impl Dumb {
    pub(crate) fn new(manner: Manner) -> Dumb {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            manner,
            objects: Mutex::default(),
            in_the_gap: Mutex::default(),
            came: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.over.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(stream), serving) = (stream, Arc::clone(&serving)) else { continue };
                // A client that has gone is of no interest.
                thread::spawn(move || drop(serving.serve(stream)));
            }
        });
        Dumb { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Every object, byte for byte.
    pub(crate) fn everything(&self) -> BTreeMap<String, Vec<u8>> {
        let objects = self.shared.objects.lock().unwrap();
        objects.iter().map(|(key, object)| (key.clone(), object.content.clone())).collect()
    }

    /// Puts an object by hand.
    pub(crate) fn tamper(&self, key: &str, content: &[u8]) {
        self.shared.put(key, content.to_vec());
    }

    pub(crate) fn delete(&self, key: &str) {
        self.shared.objects.lock().unwrap().remove(key).unwrap();
    }

    /// Makes everything look as if it had been put so long ago.
    pub(crate) fn age(&self, by: Duration) {
        for object in self.shared.objects.lock().unwrap().values_mut() {
            object.put_at -= by;
        }
    }
}

impl Drop for Dumb {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

struct Asked {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    if_match: Option<String>,
    if_none_match: bool,
    body: Vec<u8>,
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let asked = read(&mut BufReader::new(stream.try_clone()?))?;
        let (status, e_tag, body) = self.answer(&asked);
        let mut head = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\nLast-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\n",
            body.len()
        );
        if let Some(e_tag) = e_tag {
            head.push_str(&format!("ETag: {e_tag}\r\n"));
        }
        (&stream).write_all(format!("{head}\r\n").as_bytes())?;
        (&stream).write_all(&body)
    }

    fn answer(&self, asked: &Asked) -> (&'static str, Option<String>, Vec<u8>) {
        match asked.method.as_str() {
            "GET" if asked.query.contains_key("list-type") => ("200 OK", None, self.list(&asked.query)),
            "GET" => match self.objects.lock().unwrap().get(&asked.key) {
                Some(object) => ("200 OK", Some(e_tag(&object.content)), object.content.clone()),
                None => ("404 Not Found", None, Vec::new()),
            },
            "PUT" => match self.conditional_put(asked) {
                Ok(e_tag) => ("200 OK", Some(e_tag), Vec::new()),
                Err(status) => (status, None, Vec::new()),
            },
            "DELETE" => {
                self.objects.lock().unwrap().remove(&asked.key);
                ("204 No Content", None, Vec::new())
            }
            _ => ("400 Bad Request", None, Vec::new()),
        }
    }

    fn conditional_put(&self, asked: &Asked) -> Result<String, &'static str> {
        let if_match = asked
            .if_match
            .as_ref()
            .filter(|_| !matches!(self.manner, Manner::IgnoresIfMatch | Manner::IgnoresBoth));
        let if_none_match = asked.if_none_match && self.manner != Manner::IgnoresBoth;
        let conditional = if_match.is_some() || if_none_match;
        let mut objects = self.objects.lock().unwrap();
        let there = objects.get(&asked.key).map(|object| e_tag(&object.content));
        match (if_match, &there) {
            (Some(_), None) => return Err("404 Not Found"),
            (Some(wanted), Some(there)) if wanted != there => return Err("412 Precondition Failed"),
            _ if if_none_match && there.is_some() => return Err("412 Precondition Failed"),
            _ => {}
        }
        if conditional && self.manner == Manner::ChecksThenWrites {
            drop(objects);
            self.stand_in_the_gap();
            objects = self.objects.lock().unwrap();
        }
        let object = Object { content: asked.body.clone(), put_at: SystemTime::now() };
        objects.insert(asked.key.clone(), object);
        Ok(e_tag(&asked.body))
    }

    /// Until another is here too, so that the gap is hit; or for a while, when nobody comes.
    fn stand_in_the_gap(&self) {
        let mut here = self.in_the_gap.lock().unwrap();
        *here += 1;
        self.came.notify_all();
        let (mut here, _) = self.came.wait_timeout_while(here, GAP, |here| *here < 2).unwrap();
        *here -= 1;
    }

    fn put(&self, key: &str, content: Vec<u8>) {
        self.objects.lock().unwrap().insert(key.into(), Object { content, put_at: SystemTime::now() });
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Vec<u8> {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let delimited = query.contains_key("delimiter");
        let (mut contents, mut folders) = (String::new(), BTreeMap::new());
        for (key, object) in self.objects.lock().unwrap().iter() {
            let Some(rest) = key.strip_prefix(prefix).filter(|_| self.manner != Manner::ListsNothing) else {
                continue;
            };
            if let Some((folder, _)) = rest.split_once('/').filter(|_| delimited) {
                folders.insert(folder.to_owned(), ());
                continue;
            }
            contents.push_str(&format!(
                "<Contents><Key>{key}</Key><LastModified>{}</LastModified><Size>{}</Size></Contents>",
                humantime::format_rfc3339_millis(object.put_at),
                object.content.len()
            ));
        }
        for folder in folders.keys() {
            contents
                .push_str(&format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>"));
        }
        format!("<ListBucketResult>{contents}</ListBucketResult>").into_bytes()
    }
}

fn e_tag(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn read(stream: &mut impl BufRead) -> io::Result<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // Behind the bucket.
    let key = decoded(path.splitn(3, '/').nth(2).unwrap_or_default());
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
    let (mut if_match, mut if_none_match, mut length) = (None, false, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "if-match" => if_match = Some(value.to_owned()),
            "if-none-match" => if_none_match = true,
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Asked { method, key, query, if_match, if_none_match, body })
}

fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let hex = |b: Option<u8>| (b.unwrap() as char).to_digit(16).unwrap() as u8;
        match byte {
            b'%' => out.push(hex(bytes.next()) * 16 + hex(bytes.next())),
            b'+' => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap()
}
