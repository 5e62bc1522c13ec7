//! Writes objects again that the store refuses to change (`qo doctor --rescue`).
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | check that nobody has used the bucket for two minutes | nothing |
//! | 2 | read the object, and see that the store refuses several swaps while the tag stays the same (the `swaps` check) | nothing |
//! | 3 | write the same bytes without a condition, once | the same record, whether or not the write was applied |
//! | 4 | read the object, and replace it by its own bytes with a condition | the same record |
//!
//! A write without a condition can undo the change of somebody else, so this is never done without the operator's word that nobody uses the
//! bucket. Between steps 2 and 3 nobody can change the object, because the store refuses every change; only a deletion could slip
//! in. From step 4 on it can be changed again, and a copy of the write that arrives late would undo that change. Therefore the write is
//! sent once and never repeated, and if its response is lost, the report says that it is unknown when it arrives: nobody may use the
//! bucket until `qo doctor` has been run again a few minutes later.

use qo_store::StoreError;

use super::DoctorRun;
use super::report::{DoctorCheck, Health};
use super::swaps::names;
use crate::recent_use::recent_use;

/// What became of an object.
enum Rescue {
    Rescued,
    /// The store still refuses to change it.
    Refused,
    /// The write may still arrive.
    Unknown,
}

impl DoctorRun<'_> {
    pub(super) async fn rescue(&self, name: &'static str, refused: &[String]) -> DoctorCheck {
        match recent_use(self.store, self.client.now()).await {
            Ok(None) => {}
            Ok(Some(reason)) => {
                let summary = format!(
                    "the store refuses every change of {} objects ({}), and they cannot be rescued because {reason}",
                    refused.len(),
                    names(refused)
                );
                return DoctorCheck::new(name, Health::Failed, summary).hint(
                    "stop all workers, servers and clients of this bucket, wait two minutes, and run `qo doctor --rescue` again",
                );
            }
            Err(error) => return DoctorCheck::new(name, Health::Failed, error.to_string()),
        }
        let (mut rescued, mut still_refused, mut unknown) = (0_usize, Vec::new(), Vec::new());
        // One after the other: there are few of them, and a failing store is noticed early.
        for key in refused {
            match self.rescue_object(key).await {
                Ok(Rescue::Rescued) => rescued += 1,
                Ok(Rescue::Refused) | Err(_) => still_refused.push(key.clone()),
                Ok(Rescue::Unknown) => {
                    unknown.push(key.clone());
                    break;
                }
            }
        }
        let check = if !unknown.is_empty() {
            let summary = format!(
                "it is unknown whether {} was written again: the store did not respond",
                names(&unknown)
            );
            DoctorCheck::new(name, Health::Failed, summary).hint(
                "keep everything stopped for five minutes, so that the write cannot arrive later, and run `qo doctor --rescue` again",
            )
        } else if still_refused.is_empty() {
            let summary = format!("wrote {rescued} objects again that the store refused to change");
            DoctorCheck::new(name, Health::Ok, summary)
                .hint("workers and servers can be started again")
        } else {
            let summary = format!(
                "wrote {rescued} objects again; the store still refuses every change of {}: {}",
                still_refused.len(),
                names(&still_refused)
            );
            DoctorCheck::new(name, Health::Failed, summary).hint(
                "copy the objects to a new bucket, which is not and was never versioned, and use that one",
            )
        };
        check.figure("rescued", rescued)
    }

    async fn rescue_object(&self, key: &str) -> Result<Rescue, StoreError> {
        let object = self.client.get(key).await?;
        let once = self.client.trying_once();
        match once.put(key, object.body.clone()).await {
            Ok(_) => {}
            Err(StoreError::Unavailable { in_doubt: true, .. }) => return Ok(Rescue::Unknown),
            Err(error) => return Err(error),
        }
        tracing::info!(
            key,
            "wrote an object again that the store refused to change"
        );
        let is_same = self.client.get(key).await?.body == object.body;
        if is_same && !self.refuses_swaps(key).await? {
            Ok(Rescue::Rescued)
        } else {
            Ok(Rescue::Refused)
        }
    }
}
