//! Letting the brake go.

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::operator::{Sure, Who, planned, result};
use crate::shape::some;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct BrakeShape {
    /// `changed`, `unchanged` or `planned`.
    result: &'static str,
    /// Why repairs were slowed down; `null` when they were not.
    brake: Option<String>,
}

/// Runs `ringfence rebalance release-brake`.
pub(super) async fn release(common: &Common, who: &Who, sure: Sure) -> Outcome {
    sure.or_terminal(who.dry_run)?;
    let admin = who.admin(common);
    let brake = some(&admin.health().await?.brake);
    let result = match &brake {
        None => "unchanged",
        Some(_) if who.dry_run => planned(true),
        Some(why) => {
            sure.ask(&format!(
                "Repairs are slowed down: {why}.\nThis has everything granted to others at once."
            ))?;
            result(admin.release_brake().await?)
        }
    };
    let shape = BrakeShape { result, brake };
    common.output().changed(result, &shape, || sentence(&shape).to_owned())?;
    Ok(Exit::Done)
}

fn sentence(shape: &BrakeShape) -> &'static str {
    match shape.result {
        "planned" => "the brake is on and would be let go; nothing was done\n",
        "unchanged" => "the brake is not on\n",
        _ => "the brake is let go: repairs run at full speed\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn the_json_shape_of_a_release_is_a_contract() {
        let shape = BrakeShape { result: "unchanged", brake: None };
        assert_eq!(json(&shape).unwrap(), r#"{"result":"unchanged","brake":null}"#);
        assert_eq!(sentence(&shape), "the brake is not on\n");
    }
}
