//! Where a coordinator is reached: `http://HOST:PORT`, checked once, when it is given.
//!
//! An endpoint is a name, never an address that a name once stood for: it is resolved again at each connect.

use std::fmt;
use std::str::FromStr;
use tonic::transport::Uri;

/// How many endpoints may be given. More than the nodes of the largest cluster, few enough to try them all.
pub const MAX_ENDPOINTS: usize = 64;

/// A URL without what may be secret in it: who may enter, and what comes after the port. For text that is shown although it
/// is no endpoint.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    text.split(',').map(one_without_secrets).collect::<Vec<_>>().join(",")
}

fn one_without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (user, host) = rest.rsplit_once('@').map_or(("", rest), |(_, host)| ("***@", host));
    let end = host.find(['/', '?', '#']).unwrap_or(host.len());
    let more = if end + 1 < host.len() { "/***" } else { &host[end..] };
    format!("{scheme}://{user}{}{more}", &host[..end])
}

/// The longest endpoint, in bytes: a DNS name has at most 253.
const MAX_BYTES: usize = 300;

/// One coordinator node's address, as `http://HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint(Uri);

impl Endpoint {
    /// The endpoint at this URL.
    ///
    /// # Errors
    /// [`EndpointsError`] when it is not `http://HOST:PORT`; it says what to write instead.
    pub fn new(url: &str) -> Result<Endpoint, EndpointsError> {
        let wrong = |why| EndpointsError::Url { shown: shown(url), why };
        if url.len() > MAX_BYTES {
            return Err(wrong("it is longer than 300 bytes"));
        }
        if !url.contains("://") {
            return Err(wrong("the scheme is missing"));
        }
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("coordinators speak plain HTTP/2; put TLS in front of them")),
            _ => return Err(wrong("the scheme is not http")),
        }
        let authority = uri.authority().ok_or_else(|| wrong("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a user name or password has no place in it"));
        }
        if authority.host().is_empty() {
            return Err(wrong("the host is missing"));
        }
        if authority.port_u16().is_none_or(|port| port == 0) {
            return Err(wrong(
                "a port from 1 to 65535 is missing; coordinators listen on 7600 unless told otherwise",
            ));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("there is something after the port"));
        }
        Ok(Endpoint(uri))
    }

    /// The endpoint at `HOST:PORT`, the form in which coordinators name each other.
    ///
    /// # Errors
    /// As [`Endpoint::new`].
    pub fn from_address(address: &str) -> Result<Endpoint, EndpointsError> {
        Endpoint::new(&format!("http://{address}"))
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        // `new` has seen an authority.
        self.0.authority().map_or("", |authority| authority.as_str())
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.address())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointsError;
    fn from_str(url: &str) -> Result<Endpoint, EndpointsError> {
        Endpoint::new(url)
    }
}

/// The endpoints a client starts from: at least one. It learns the other nodes from the cluster itself, so one that is
/// up is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    /// These endpoints; one named twice counts once.
    ///
    /// # Errors
    /// [`EndpointsError`] when there is none, or more than [`MAX_ENDPOINTS`].
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Result<Endpoints, EndpointsError> {
        let mut distinct: Vec<Endpoint> = Vec::new();
        for endpoint in endpoints {
            if !distinct.contains(&endpoint) {
                distinct.push(endpoint);
            }
            if distinct.len() > MAX_ENDPOINTS {
                return Err(EndpointsError::TooMany);
            }
        }
        if distinct.is_empty() { Err(EndpointsError::None) } else { Ok(Endpoints(distinct)) }
    }

    /// The endpoints, in the order given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Endpoint> {
        self.0.iter()
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, endpoint) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{endpoint}")?;
        }
        Ok(())
    }
}

/// Comma-separated URLs: `http://a:7600,http://b:7600`.
impl FromStr for Endpoints {
    type Err = EndpointsError;
    fn from_str(text: &str) -> Result<Endpoints, EndpointsError> {
        let urls = text.split(',').map(str::trim).filter(|url| !url.is_empty());
        // One more than allowed is enough to refuse it.
        Endpoints::new(urls.take(MAX_ENDPOINTS + 1).map(Endpoint::new).collect::<Result<Vec<_>, _>>()?)
    }
}

impl TryFrom<&str> for Endpoints {
    type Error = EndpointsError;
    fn try_from(text: &str) -> Result<Endpoints, EndpointsError> {
        text.parse()
    }
}

impl TryFrom<String> for Endpoints {
    type Error = EndpointsError;
    fn try_from(text: String) -> Result<Endpoints, EndpointsError> {
        text.parse()
    }
}

impl From<Endpoint> for Endpoints {
    fn from(endpoint: Endpoint) -> Endpoints {
        Endpoints(vec![endpoint])
    }
}

/// Endpoints that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointsError {
    /// No endpoint was given.
    #[error("no endpoint was given: name at least one coordinator, such as http://127.0.0.1:7600")]
    None,
    /// More endpoints than a cluster has nodes.
    #[error(
        "more than {MAX_ENDPOINTS} endpoints were given; one that is up is enough, the others are learnt from it"
    )]
    TooMany,
    /// A text that is not an endpoint.
    #[error("{shown} is not an endpoint: {why}; write http://HOST:PORT, such as http://127.0.0.1:7600")]
    Url {
        /// The text, escaped and cut.
        shown: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

fn shown(text: &str) -> String {
    let text = &without_secrets(text);
    let cut: String = text.chars().take(80).collect();
    let dots = if cut.len() < text.len() { "..." } else { "" };
    format!("\"{}{dots}\"", cut.escape_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f021_what_may_be_secret_is_not_shown() {
        for url in
            ["http://u:hunter2@h:1", "http://h:1/x?key=hunter2", "http://u:hunter2/x@h:1", "http://hunter2@"]
        {
            for text in [url.to_owned(), format!("http://a:1,{url}"), format!("{url},http://a:1")] {
                let error = text.parse::<Endpoints>().unwrap_err().to_string();
                assert!(!error.contains("hunter2"), "{error}");
                assert!(!without_secrets(&text).contains("hunter2"), "{text}");
            }
        }
        assert_eq!(without_secrets("http://a:1/,b"), "http://a:1/,b");
    }

    #[test]
    fn urls_are_read_and_written_back() {
        for (text, back) in [
            ("http://127.0.0.1:7600", "http://127.0.0.1:7600"),
            ("http://[::1]:7600/", "http://[::1]:7600"),
            (" http://a:1 , http://b:2,http://a:1,", "http://a:1,http://b:2"),
        ] {
            assert_eq!(text.parse::<Endpoints>().map(|e| e.to_string()), Ok(back.to_string()));
        }
        assert_eq!(
            Endpoint::from_address("n1.local:7600").map(|e| e.address().to_string()),
            Ok("n1.local:7600".into())
        );
    }

    #[test]
    fn what_is_not_an_endpoint_is_refused_with_what_to_write() {
        for (bad, why) in [
            ("127.0.0.1:7600", "scheme is missing"),
            ("https://a:7600", "put TLS in front"),
            ("ftp://a:7600", "scheme is not http"),
            ("http://a", "port from 1"),
            ("http://a:0", "port from 1"),
            ("http://a:99999", "port from 1"),
            ("http://:7600", "is missing"),
            ("http://u:p@a:7600", "user name"),
            ("http://a:7600/x", "after the port"),
            ("http://a:7600?x", "after the port"),
            ("http://a b:7600", "not a URL"),
            ("http://\u{1b}[31m:7600", "not a URL"),
            ("", "no endpoint"),
            (" , ", "no endpoint"),
        ] {
            let error = bad.parse::<Endpoints>().expect_err(bad).to_string();
            assert!(error.contains(why) && error.contains("http://"), "{bad:?}: {error}");
            assert!(!error.contains('\u{1b}'), "{error:?}");
        }
        let many: Vec<String> = (0..100).map(|i| format!("http://a{i}:1")).collect();
        assert_eq!(many.join(",").parse::<Endpoints>(), Err(EndpointsError::TooMany));
    }
}
