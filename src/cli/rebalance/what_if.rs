//! Something to suppose: `add:w9,weight=2,zone=b`, `remove:w2`, `weight:w1=2`.

use ringfence::admin::{Weight, WhatIf};
use ringfence::ids::WorkerId;
use std::collections::BTreeMap;
use std::str::FromStr;

/// As it is written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WhatIfArg(pub(super) WhatIf);

impl FromStr for WhatIfArg {
    type Err = String;

    fn from_str(text: &str) -> Result<WhatIfArg, String> {
        let what = match text.split_once(':') {
            Some(("add", rest)) => add(rest)?,
            Some(("remove", name)) => WhatIf::Remove(worker(name)?),
            Some(("weight", rest)) => {
                let (name, number) =
                    rest.split_once('=').ok_or("write weight:WORKER=N, such as weight:w1=2")?;
                WhatIf::Weigh { worker: worker(name)?, weight: weight(number)? }
            }
            _ => {
                return Err("write add:WORKER[,weight=N][,LABEL=VALUE]..., remove:WORKER or weight:WORKER=N"
                    .to_owned());
            }
        };
        Ok(WhatIfArg(what))
    }
}

fn add(text: &str) -> Result<WhatIf, String> {
    let mut parts = text.split(',');
    let worker = worker(parts.next().unwrap_or_default())?;
    let mut labels = BTreeMap::new();
    let mut given = None;
    for part in parts {
        let (key, value) =
            part.split_once('=').ok_or("after the worker write weight=N or LABEL=VALUE, such as zone=b")?;
        if key == "weight" {
            if given.replace(weight(value)?).is_some() {
                return Err("it has two weights".to_owned());
            }
        } else if key.is_empty() {
            return Err("a label has no name".to_owned());
        } else if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err("a label stands there twice".to_owned());
        }
    }
    Ok(WhatIf::Add { worker, weight: given.unwrap_or(Weight::ONE), labels })
}

fn worker(name: &str) -> Result<WorkerId, String> {
    WorkerId::new(name).map_err(|error| error.to_string())
}

fn weight(number: &str) -> Result<Weight, String> {
    let number = number.parse().map_err(|_| format!("a weight is a number from 1 to {}", Weight::MAX))?;
    Weight::new(number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supposition_is_written_as_it_is_documented() {
        let read = |text: &str| text.parse::<WhatIfArg>().unwrap().0;
        let name = |name: &str| WorkerId::new(name).unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(
            read("add:w9,weight=2,zone=b"),
            WhatIf::Add {
                worker: name("w9"),
                weight: Weight::new(2).unwrap(),
                labels: labels(&[("zone", "b")])
            }
        );
        let plain = WhatIf::Add { worker: name("w9"), weight: Weight::ONE, labels: labels(&[]) };
        assert_eq!(read("add:w9"), plain);
        assert_eq!(read("remove:w2"), WhatIf::Remove(name("w2")));
        assert_eq!(
            read("weight:w1=2"),
            WhatIf::Weigh { worker: name("w1"), weight: Weight::new(2).unwrap() }
        );
    }

    #[test]
    fn f062_what_is_no_supposition_says_how_to_write_one() {
        for (bad, said) in [
            ("", "add:WORKER"),
            ("w9", "add:WORKER"),
            ("drop:w9", "add:WORKER"),
            ("add:", "name"),
            ("add:w9,weight=0", "10000"),
            ("add:w9,weight=x", "10000"),
            ("add:w9,weight=1,weight=2", "two weights"),
            ("add:w9,zone", "LABEL=VALUE"),
            ("add:w9,=b", "no name"),
            ("add:w9,zone=a,zone=b", "twice"),
            ("remove:W", "name"),
            ("weight:w1", "weight:w1=2"),
            ("weight:w1=10001", "10000"),
        ] {
            let error = bad.parse::<WhatIfArg>().unwrap_err();
            assert!(error.contains(said), "{bad}: {error}");
        }
    }
}
