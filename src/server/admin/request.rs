//! One change that an operator asks for: decided on a confirmed state, committed once.

use crate::context::{Committed, Context};
use crate::refusal;
use crate::replica::Local;
use ringfence_api::Failure;
use ringfence_api::convert::RequestId;
use ringfence_core::ids::Term;
use ringfence_core::state::{Command, Outcome, Refused};

/// How often a decision is made anew when the state moved on between the look and the entry.
const TRIES: usize = 3;

/// What became of a request.
pub(crate) enum Answer {
    /// It took effect now.
    Now {
        /// The term in which it was decided.
        term: Term,
        /// What its commands did.
        outcomes: Vec<Outcome>,
    },
    /// It had taken effect before; this is what its commands did then.
    Before(Vec<Outcome>),
    /// There was nothing to do.
    Nothing,
}

impl Answer {
    /// What the last command did: a directive comes before what it decides.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        match self {
            Answer::Now { outcomes, .. } | Answer::Before(outcomes) => outcomes.last(),
            Answer::Nothing => None,
        }
    }

    /// It has changed something, now or when it was asked for first. A directive by which nothing changes is not one.
    pub(crate) fn changed(&self) -> bool {
        match self {
            Answer::Now { outcomes, .. } | Answer::Before(outcomes) => {
                outcomes.iter().any(|outcome| *outcome != Outcome::Unchanged)
            }
            Answer::Nothing => false,
        }
    }
}

/// Decides on a confirmed state what to propose, and proposes it under the request's id. Nothing from `decide`: there is
/// nothing to do.
///
/// # Errors
/// [`Failure`]: of `decide`, of the log, or because the state refused.
pub(crate) async fn run(
    context: &Context,
    request: RequestId,
    decide: impl Fn(&Local) -> Result<Vec<Command>, Failure>,
) -> Result<Answer, Failure> {
    let mut tries = 1;
    loop {
        let (term, _) = context.confirm().await?;
        let commands = {
            let local = context.replica.lock();
            if let Some(outcomes) = local.state.answer_to(request.id) {
                return Ok(Answer::Before(outcomes.to_vec()));
            }
            decide(&local)?
        };
        if commands.is_empty() {
            return Ok(Answer::Nothing);
        }
        match context.propose(Some(request.into()), commands, Some(term)).await? {
            Ok(Committed { outcomes, .. }) => return Ok(Answer::Now { term, outcomes }),
            // A refused request changed nothing and is not remembered, so it may be decided anew under its id.
            Err(refused) if tries < TRIES && moved_on(&refused.why) => tries += 1,
            Err(refused) => return Err(refusal::to_failure(context, &refused.why)),
        }
    }
}

/// The look was overtaken: another look may decide otherwise.
fn moved_on(why: &Refused) -> bool {
    matches!(why, Refused::StaleEpoch { .. } | Refused::NotVacant(_) | Refused::NotOwned(_))
}
