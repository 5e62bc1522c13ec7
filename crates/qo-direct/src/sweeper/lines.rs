//! Walks the lines of ordering keys and repairs their heads.
//!
//! Every crash between the steps of an operation is repaired through the task that it concerns ([`super::tasks`]). This walk finds what has no
//! such task: a write of a line that arrived long after its sender gave up, and a head whose record was quarantined. The ordering key of a
//! damaged record is unknown, so a pass that has quarantined one walks all lines afterwards, in the same steps as everything else.

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::Key;
use qo_store::client::Entry;

use super::super::DirectEngine;
use super::SweepReport;
use super::cursor::SweepRecord;

impl DirectEngine {
    /// Sweeps one page of lines.
    pub(super) async fn sweep_lines(
        &self,
        entries: &[Entry],
        record: &mut SweepRecord,
        report: &mut SweepReport,
    ) {
        let cutoff = self.grace_cutoff();
        let mut due = Vec::new();
        for entry in entries {
            let Ok(Key::Line(digest)) = entry.key.parse() else {
                report.left += 1;
                continue;
            };
            let [id @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *digest.as_bytes();
            // The head may have been damaged however recently the line was changed.
            let is_due =
                entry.last_modified <= cutoff && record.is_compared(TaskId::from_bytes(id));
            if is_due || record.walks_lines() {
                due.push(digest);
            }
        }
        report.read += due.len();
        let mut checks = futures_util::stream::iter(due)
            .map(|digest| async move { self.check_line(&digest).await })
            .buffer_unordered(self.config().concurrency);
        while let Some(check) = checks.next().await {
            match check {
                Ok(is_repaired) => report.repaired += usize::from(is_repaired),
                Err(error) => {
                    tracing::debug!(%error, "could not check the line of an ordering key; trying again later");
                    report.failed += 1;
                    record.repeat_lines();
                }
            }
        }
    }
}
