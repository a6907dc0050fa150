//! An ownership as what stamps the requests of a client.

use super::Ownership;
use crate::fence::FencingToken;
use crate::fence::service::{NoStamp, StampSource};

/// It is bound to its epoch, so a client that is stamped by it never sends under a later one; when it is over, nothing is
/// sent.
impl StampSource for Ownership {
    fn stamp(&self) -> Result<FencingToken, NoStamp> {
        Ownership::stamp(self).map_err(|over| NoStamp::new(over.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Granted;

    #[test]
    fn t05_a_client_of_an_ownership_stamps_under_its_epoch_or_not_at_all() {
        let (first, mut control) = Granted::new("orders", 17).epoch(33).start().unwrap();
        let source = first.clone();
        assert_eq!(StampSource::stamp(&source).unwrap().epoch().get(), 33);
        let again = control.next_epoch().unwrap();
        assert_eq!(StampSource::stamp(&again).unwrap().epoch().get(), 34);
        let over = StampSource::stamp(&source).unwrap_err();
        assert!(over.to_string().contains("33"), "{over}");
    }
}
