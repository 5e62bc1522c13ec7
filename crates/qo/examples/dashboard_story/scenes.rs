//! What happens in the hour.

use std::collections::BTreeMap;

use qo::model::keys::Key;
use qo::model::transition::{Action, Idempotency, Submission, submit};
use qo::model::{OpId, Payload, PayloadRef, Status};
use qo::{FailureKind, ProgressReport, Task, TaskId, Timestamp, WorkerInfo};

use super::{Story, StoryResult, planned};

const MINUTE: i64 = 60_000;

impl Story {
    pub(super) fn build(&mut self) -> StoryResult<()> {
        for index in 0..120 {
            self.ordinary(index)?;
        }
        self.failures()?;
        self.waiting()?;
        self.running()?;
        self.put_away()?;
        self.special()?;
        self.workers()?;
        let since = self.ago(25 * MINUTE);
        let op = OpId::from_random(self.wide());
        let queues = serde_json::json!({ "revision": 1, "op_id": op, "recent_ops": [], "paused": { "reports": since } });
        self.objects
            .push(("meta/queues.json".into(), queues.to_string()));
        Ok(())
    }

    /// Tasks that succeed, more of them recently, some at the second attempt.
    fn ordinary(&mut self, index: u64) -> StoryResult<()> {
        let millis = i64::try_from(self.below(58 * 60_000).min(self.below(58 * 60_000)))? + 2_000;
        let (task_type, queue, input, run_ms) = match self.below(10) {
            0..=3 => (
                "send_email",
                "default",
                format!(r#"{{"to":"user{index}@example.org","template":"welcome","locale":"en"}}"#),
                300,
            ),
            4..=6 => (
                "resize_image",
                "bulk",
                format!(
                    r#"{{"source":"uploads/{index}.jpg","widths":[320,640,1280],"quality":0.82}}"#
                ),
                2_400,
            ),
            7 => (
                "charge_card",
                "billing",
                format!(
                    r#"{{"order":{},"amount":{{"cents":{},"currency":"EUR"}}}}"#,
                    70_000 + index,
                    990 + index * 10
                ),
                900,
            ),
            8 => (
                "sync_crm",
                "default",
                format!(r#"{{"account":"acct-{index}","full":false}}"#),
                1_500,
            ),
            _ => (
                "import_csv",
                "bulk",
                format!(
                    r#"{{"file":"imports/{index}.csv","rows":{}}}"#,
                    1_000 + index * 37
                ),
                6_000,
            ),
        };
        let mut plan = planned(task_type, queue, &input, self.ago(millis + 5_000));
        if index.is_multiple_of(9) {
            plan.tags.push("vip");
        }
        let mut task = self.submitted(plan)?;
        let wait = i64::try_from(self.below(900))? + 40;
        let mut at = task.created_at.as_millis() + wait;
        if index.is_multiple_of(11) {
            self.claim(&mut task, at)?;
            self.fail(
                &mut task,
                FailureKind::Retryable,
                "connection reset by peer",
                at + 250,
            )?;
            at = task.available_at.as_millis() + wait;
        }
        self.claim(&mut task, at)?;
        let run = i64::try_from(run_ms / 2 + self.below(run_ms))?;
        self.complete(&mut task, r#"{"ok":true}"#, at + run)?;
        self.keep(&task)
    }

    /// Dead letters: bugs and exhausted retries.
    fn failures(&mut self) -> StoryResult<()> {
        let errors = [
            (
                "charge_card",
                "billing",
                "card declined: insufficient_funds (402 from payments.example.com)",
            ),
            (
                "resize_image",
                "bulk",
                "unsupported image format: image/heic\n  at decode (resize.rs:118)\n  at handle (resize.rs:41)",
            ),
            (
                "sync_crm",
                "default",
                "401 Unauthorized: the API token has expired",
            ),
            (
                "import_csv",
                "bulk",
                "row 1841: expected 12 columns, found 11",
            ),
        ];
        for index in 0..13_i64 {
            let (task_type, queue, error) = errors[usize::try_from(index)? % errors.len()];
            let input = format!(r#"{{"attempted":true,"n":{index}}}"#);
            let mut plan = planned(task_type, queue, &input, self.ago((3 + index * 4) * MINUTE));
            plan.retries = if index % 3 == 0 { 2 } else { 0 };
            let mut task = self.submitted(plan)?;
            let mut at = task.created_at.as_millis() + 300;
            loop {
                self.claim(&mut task, at)?;
                self.fail(&mut task, FailureKind::Retryable, error, at + 700)?;
                if task.status == Status::Failed {
                    break;
                }
                at = task.available_at.as_millis() + 20;
            }
            self.keep(&task)?;
        }
        Ok(())
    }

    fn waiting(&mut self) -> StoryResult<()> {
        for index in 0..11_i64 {
            let (task_type, queue) = [
                ("generate_report", "reports"),
                ("send_email", "default"),
                ("resize_image", "bulk"),
            ][usize::try_from(index)? % 3];
            let mut plan = planned(
                task_type,
                queue,
                &format!(r#"{{"n":{index}}}"#),
                self.ago(20_000 + index * 37_000),
            );
            plan.priority = [5, 1, 9][usize::try_from(index)? % 3];
            let task = self.submitted(plan)?;
            self.keep(&task)?;
        }
        for index in 0..9_i64 {
            let plan = planned(
                "send_digest",
                "default",
                &format!(r#"{{"list":{index}}}"#),
                self.ago(10 * MINUTE),
            );
            let due = Timestamp::from_millis(self.now.as_millis() + (index + 1) * 11 * MINUTE);
            let task = self.submitted_for(plan, Some(due))?;
            self.keep(&task)?;
        }
        let mut plan = planned(
            "charge_card",
            "billing",
            r#"{"order":70991,"amount":{"cents":4200,"currency":"EUR"}}"#,
            self.ago(4 * MINUTE),
        );
        plan.retries = 8;
        plan.tags.push("vip");
        let mut task = self.submitted(plan)?;
        for _ in 0..5 {
            let at = (task.available_at.as_millis() + 40).max(task.updated_at.as_millis() + 40);
            self.claim(&mut task, at)?;
            self.fail(
                &mut task,
                FailureKind::Timeout,
                "the payment provider did not answer within 30 s",
                at + 30_000,
            )?;
        }
        self.keep(&task)
    }

    fn running(&mut self) -> StoryResult<()> {
        for (index, (percent, message)) in [
            (Some(62.0), "1,240 of 2,000 rows"),
            (Some(8.0), "reading the source"),
            (None, ""),
            (Some(97.5), "uploading"),
            (None, ""),
        ]
        .into_iter()
        .enumerate()
        {
            let index = i64::try_from(index)?;
            let plan = planned(
                "import_csv",
                "bulk",
                &format!(r#"{{"file":"imports/big-{index}.csv"}}"#),
                self.ago(90_000 + index * 20_000),
            );
            let mut task = self.submitted(plan)?;
            let at = self.now.as_millis() - 15_000 - index * 1_500;
            self.claim_as(
                &mut task,
                if index % 2 == 0 {
                    "worker-eu-1"
                } else {
                    "worker-eu-2"
                },
                at,
                600_000,
            )?;
            if let (Some(percent), Some(lease)) = (percent, task.lease_id) {
                let report = ProgressReport {
                    percent,
                    message: Some(message.into()),
                };
                self.apply(
                    &mut task,
                    Action::Progress { lease, report },
                    self.now.as_millis() - 3_000,
                )?;
            }
            if index == 4 {
                self.apply(
                    &mut task,
                    Action::Cancel {
                        reason: Some("superseded by a newer import".into()),
                    },
                    self.now.as_millis() - 1_000,
                )?;
            }
            self.keep(&task)?;
        }
        Ok(())
    }

    fn put_away(&mut self) -> StoryResult<()> {
        for index in 0..4_i64 {
            let plan = planned(
                "send_email",
                "default",
                &format!(r#"{{"n":{index}}}"#),
                self.ago((6 + index * 7) * MINUTE),
            );
            let mut task = self.submitted_for(plan, Some(self.ago(-60 * MINUTE)))?;
            let at = task.created_at.as_millis() + MINUTE;
            self.apply(
                &mut task,
                Action::Cancel {
                    reason: Some("the customer unsubscribed".into()),
                },
                at,
            )?;
            self.keep(&task)?;
        }
        for index in 0..6_i64 {
            let plan = planned(
                "generate_report",
                "reports",
                &format!(r#"{{"month":{}}}"#, index + 1),
                self.ago((20 + index * 5) * MINUTE),
            );
            let mut task = self.submitted(plan)?;
            let at = task.created_at.as_millis() + 400;
            self.claim(&mut task, at)?;
            self.complete(&mut task, r#"{"pages":12}"#, at + 8_000)?;
            self.apply(&mut task, Action::Archive, at + 60_000)?;
            self.keep(&task)?;
        }
        Ok(())
    }

    /// Tasks that tests find by name.
    fn special(&mut self) -> StoryResult<()> {
        // Markup and script in every text that users can set.
        let nasty = r#"{"html":"<img src=x onerror=\"window.qoHacked=1\"><script>window.qoHacked=1</script>","n":123456789012345678901234567890.10,"</script>":"javascript:window.qoHacked=1"}"#;
        let mut plan = planned("render_page", "default", nasty, self.ago(2 * MINUTE));
        plan.tags = vec!["<b>bold</b>", "\"><script>window.qoHacked=1</script>"];
        plan.retries = 0;
        let mut task = self.submitted(plan)?;
        let at = task.created_at.as_millis() + 100;
        self.claim(&mut task, at)?;
        self.fail(
            &mut task,
            FailureKind::Permanent,
            "<script>window.qoHacked=1</script> is not allowed here & <b>never</b> was",
            at + 200,
        )?;
        self.keep(&task)?;

        // A payload that is too large for the record.
        let rows: Vec<_> = (0..4_000)
            .map(|row| serde_json::json!({ "row": row, "name": format!("customer {row}") }))
            .collect();
        let text = serde_json::to_string(&rows)?;
        let reference = PayloadRef::new(text.len() as u64, sha256(text.as_bytes()));
        let id = TaskId::from_random(self.wide());
        let key = Key::Input {
            id,
            sha256: reference.sha256,
        };
        let mut submission =
            Submission::new(id, "import_rows".parse()?, Payload::Stored(reference));
        submission.idempotency = Some(Idempotency {
            key: "import 2026-11".parse()?,
            scope: qo::IdempotencyScope::Queue,
            until: None,
        });
        let mut task = submit(
            submission,
            OpId::from_random(self.wide()),
            self.ago(3 * MINUTE),
        )?;
        self.objects.push((key.to_string(), text));
        let at = task.created_at.as_millis() + 150;
        self.claim(&mut task, at)?;
        self.complete(&mut task, r#"{"imported":4000}"#, at + 12_345)?;
        self.keep(&task)?;

        // A task whose every version is stored, for versioned buckets.
        let mut plan = planned(
            "nightly_backup",
            "default",
            r#"{"database":"orders","incremental":true}"#,
            self.ago(12 * MINUTE),
        );
        plan.retries = 1;
        let mut task = self.submitted(plan)?;
        self.store(&task)?;
        let mut at = task.created_at.as_millis() + 500;
        for error in [
            "no space left on device",
            "no space left on device: 2.1 GiB needed, 1.4 GiB free",
        ] {
            self.claim(&mut task, at)?;
            self.store(&task)?;
            self.fail(&mut task, FailureKind::Retryable, error, at + 41_000)?;
            self.store(&task)?;
            at = task.available_at.as_millis() + 500;
        }
        Ok(())
    }

    fn workers(&mut self) -> StoryResult<()> {
        let known = [
            ("worker-eu-1", 9_000, 8, Some("ip-10-0-3-17"), 1_204, 9),
            ("worker-eu-2", 14_000, 8, Some("ip-10-0-3-42"), 1_187, 12),
            ("worker-billing", 4_000, 2, Some("billing-0"), 312, 21),
            ("worker-us-1", 140_000, 8, Some("ip-10-8-1-5"), 864, 3),
            ("laptop-ada", 3_000_000, 1, Some("ada.local"), 17, 2),
        ];
        for (name, silent_ms, slots, host, completed, failed) in known {
            let mut worker = WorkerInfo::new(name.parse()?, self.ago(6 * 60 * MINUTE));
            worker.last_heartbeat = self.ago(silent_ms);
            worker.slots = slots;
            worker.host = host.map(str::to_owned);
            worker.tasks_completed = completed;
            worker.tasks_failed = failed;
            worker.cpu_percent = Some(12 * slots);
            worker.memory_bytes = Some((40 + 6 * u64::from(slots)) * 1_048_576);
            if name == "worker-billing" {
                worker.queues = vec!["billing".parse()?];
                worker.types = vec!["charge_card".parse()?];
            }
            worker.current_tasks = self.running_on(name);
            worker.current_task = worker.current_tasks.first().copied();
            self.objects.push((
                format!("workers/{name}.json"),
                serde_json::to_string(&worker)?,
            ));
        }
        Ok(())
    }

    fn running_on(&self, worker: &str) -> Vec<TaskId> {
        // The last stored version is the current task.
        let stored: BTreeMap<_, _> = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with("tasks/"))
            .filter_map(|(key, body)| Some((key, qo::model::task::decode(body.as_bytes()).ok()?)))
            .collect();
        let is_here = |task: &Task| {
            task.status == Status::Running
                && task
                    .worker_id
                    .as_ref()
                    .is_some_and(|id| id.as_str() == worker)
        };
        stored
            .into_values()
            .filter(is_here)
            .map(|task| task.id)
            .collect()
    }
}

fn sha256(bytes: &[u8]) -> qo::model::Sha256 {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut array = [0; 32];
    array.copy_from_slice(digest.as_ref());
    qo::model::Sha256::from_bytes(array)
}
