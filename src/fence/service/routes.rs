//! What a service lets through without a token, by name.

use http::Method;

/// Which requests need no token. Everything else does, so a route that nobody thought of is fenced.
///
/// A path is compared as the layer sees it, byte by byte: `/orders.v1.Ledger/Get` for a call of gRPC, and what a router has left of
/// it where the layer is nested. One that ends in `/*` stands for all below it; a request below it whose path has an empty
/// segment, a dot segment or an escape in it is not matched, for a handler may read it as another.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    open: Vec<Pattern>,
    read_only: Vec<Pattern>,
    raises: Vec<Pattern>,
    reads_are_open: bool,
}

#[derive(Clone, Debug)]
enum Pattern {
    Exactly(String),
    Below(String),
}

/// What is asked of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Nothing; its header is not even read.
    Nothing,
    /// A token may be there, and is judged then.
    TokenIfAny,
    /// A token has to be there.
    Token,
    /// A token has to be there, and raises the fence.
    Raise,
}

impl Routes {
    /// Every request needs a token.
    pub fn all_fenced() -> Routes {
        Routes::default()
    }

    /// Lets a path through without looking: health checks, metrics, the reflection of gRPC.
    #[must_use]
    pub fn open(mut self, path: &str) -> Routes {
        self.open.push(Pattern::of(path));
        self
    }

    /// A path that only reads, whatever its method, such as a call of gRPC: it may come without a token, and is judged when
    /// it has one.
    #[must_use]
    pub fn read_only(mut self, path: &str) -> Routes {
        self.read_only.push(Pattern::of(path));
        self
    }

    /// The same for every GET and HEAD. Only where these change nothing, as they should.
    #[must_use]
    pub fn reads_are_open(mut self) -> Routes {
        self.reads_are_open = true;
        self
    }

    /// A path whose POSTs raise the fence to their tokens before the handler is called: what an owner calls before it reads
    /// anything. Every call of gRPC is one. Of several tokens each is raised by itself: what was raised before one is refused
    /// stays raised.
    #[must_use]
    pub fn raised_by(mut self, path: &str) -> Routes {
        self.raises.push(Pattern::of(path));
        self
    }

    pub(crate) fn demand(&self, method: &Method, path: &str) -> Demand {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(path));
        // The stricter wins where a path is named twice.
        if any(&self.raises) {
            if *method == Method::POST { Demand::Raise } else { Demand::Token }
        } else if any(&self.read_only) {
            Demand::TokenIfAny
        } else if any(&self.open) {
            Demand::Nothing
        } else if self.reads_are_open && matches!(*method, Method::GET | Method::HEAD) {
            Demand::TokenIfAny
        } else {
            Demand::Token
        }
    }
}

impl Pattern {
    fn of(path: &str) -> Pattern {
        match path.strip_suffix('*').filter(|prefix| prefix.ends_with('/')) {
            Some(prefix) => Pattern::Below(prefix.into()),
            None => Pattern::Exactly(path.into()),
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Pattern::Exactly(this) => this == path,
            Pattern::Below(prefix) => path.strip_prefix(prefix.as_str()).is_some_and(is_plain),
        }
    }
}

/// Whether there is one reading of it only.
fn is_plain(rest: &str) -> bool {
    !rest.contains(['%', '\\', ';']) && rest.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f005_a_request_that_nobody_named_needs_a_token() {
        let none = Routes::all_fenced();
        for method in [Method::GET, Method::HEAD, Method::POST, Method::DELETE, Method::OPTIONS] {
            assert_eq!(none.demand(&method, "/"), Demand::Token);
        }
        let some = Routes::all_fenced()
            .open("/health")
            .open("/docs/*")
            .read_only("/orders.v1.Ledger/Get")
            .raised_by("/orders.v1.Ledger/Open");
        for (path, demand) in [
            ("/health", Demand::Nothing),
            ("/health/", Demand::Token),
            ("/Health", Demand::Token),
            ("/docs/a/b", Demand::Nothing),
            ("/docs/", Demand::Token),
            ("/docs/../orders", Demand::Token),
            ("/docs/%2e%2e/orders", Demand::Token),
            ("/docs//orders", Demand::Token),
            ("/docs/.;/orders", Demand::Token),
            ("/orders.v1.Ledger/Get", Demand::TokenIfAny),
            ("/orders.v1.Ledger/Open", Demand::Raise),
            ("/orders.v1.Ledger/Put", Demand::Token),
        ] {
            assert_eq!(some.demand(&Method::POST, path), demand, "{path}");
        }
    }

    #[test]
    fn reads_are_open_only_where_it_was_said_and_no_route_loses_its_raise() {
        let routes = Routes::all_fenced().reads_are_open().open("/a/*").raised_by("/a/open");
        assert_eq!(routes.demand(&Method::GET, "/x"), Demand::TokenIfAny);
        assert_eq!(routes.demand(&Method::HEAD, "/x"), Demand::TokenIfAny);
        assert_eq!(routes.demand(&Method::OPTIONS, "/x"), Demand::Token);
        assert_eq!(routes.demand(&Method::POST, "/a/open"), Demand::Raise);
        assert_eq!(routes.demand(&Method::GET, "/a/open"), Demand::Token);
    }
}
