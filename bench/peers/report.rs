//! Medians and ratios.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Whether more of it is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// What was measured.
#[derive(Default)]
pub struct Report {
    measures: Vec<(&'static str, Better, BTreeMap<String, Vec<f64>>)>,
}

impl Report {
    /// Notes one value.
    pub fn add(&mut self, what: &'static str, better: Better, name: &str, value: f64) {
        let at = self.measures.iter().position(|(known, ..)| *known == what).unwrap_or_else(|| {
            self.measures.push((what, better, BTreeMap::new()));
            self.measures.len() - 1
        });
        self.measures[at].2.entry(name.to_owned()).or_default().push(value);
    }

    /// Medians, with the least and the most, and how ringfence compares with each peer.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (what, better, of) in &self.measures {
            let _ = writeln!(text, "{what}");
            let ours = of.get("ringfence").map_or(f64::NAN, |values| median(values));
            for (name, values) in of {
                let (least, most) = bounds(values);
                let _ = write!(text, "  {name:<24} {:>10.1}  ({least:.1} to {most:.1})", median(values));
                if !name.starts_with("ringfence") {
                    let times = ratio(*better, ours, median(values));
                    let verdict = if times >= 1.0 { "ringfence wins" } else { "IT WINS" };
                    let _ = write!(text, "  ringfence: {times:.2} times, {verdict}");
                }
                let _ = writeln!(text);
            }
        }
        text
    }

    /// The same as JSON, with every value.
    pub fn json(&self) -> String {
        let measures: Vec<serde_json::Value> = self
            .measures
            .iter()
            .map(|(what, better, of)| {
                let ours = of.get("ringfence").map_or(f64::NAN, |values| median(values));
                let servers: serde_json::Map<String, serde_json::Value> = of
                    .iter()
                    .map(|(name, values)| {
                        let times = ratio(*better, ours, median(values));
                        let server = serde_json::json!({ "median": median(values), "values": values, "ringfence_times": times });
                        (name.clone(), server)
                    })
                    .collect();
                serde_json::json!({ "measure": what, "more_is_better": *better == Better::More, "servers": servers })
            })
            .collect();
        serde_json::json!({ "measures": measures }).to_string()
    }
}

fn ratio(better: Better, ours: f64, theirs: f64) -> f64 {
    if better == Better::More { ours / theirs } else { theirs / ours }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

fn bounds(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(*value), most.max(*value))
    })
}
