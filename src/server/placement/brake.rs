//! Letting the brake go.
//!
//! The brake belongs to one leader, which counts what is lost under it: the next leader begins without one, so there is
//! nothing to tell it. What goes through the log is who let it go and why. The rest happens here, and concerns what was
//! lost until now: for the next incident the brake is there again.

use super::directive::{Given, direct};
use super::settings::changed;
use crate::admin::request::{Answer, run};
use crate::context::Context;
use ringfence_api::Failure;
use ringfence_api::convert::RequestId;
use ringfence_api::v1;
use ringfence_core::state::Subject;

const WHAT: &str = "release the brake";

pub(super) async fn release(
    context: &Context,
    request: v1::ReleaseBrakeRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let context = context.clone();
    // Of its own, so that a caller that hangs up does not leave behind a directive that nobody carried out.
    let released = tokio::spawn(async move {
        let answer = run(&context, id, |local| {
            let now = context.clock.now();
            let leadership = local.leadership.as_ref().ok_or_else(Failure::no_leader)?;
            let on = leadership.placing.braked(now, &local.state);
            Ok(on.then(|| direct(Subject::Cluster, &given, WHAT)).into_iter().collect())
        })
        .await?;
        if let Answer::Now { term, .. } = &answer
            && let Some(leadership) = context.replica.lock().leading(*term)
        {
            leadership.placing.release_brake();
        }
        changed(&given, WHAT, answer)
    });
    released.await.map_err(|_| Failure::unknown_outcome())?
}
