//! `qo list`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use qo_remote::wire::Sort;

use super::{FilterArgs, WatchArgs};

/// Arguments of `qo list`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo list
  qo list --status failed,cancelled --since 2h
  qo list --queue mail --type send_email --limit 20
  qo list --status running --watch
  qo list --all --json | jq -r 'select(.attempt > 1) | .id'
  qo list --sort id --limit 1000
  qo list --status pending --sort due --limit 10
  qo list --sort attempts
  qo list --status failed --text 'connection refused'
  qo list --search 'type:mail*,sms -queue:bulk since:2h or tag:vip'

The newest tasks come first. Brokers and clusters keep an index for this order. Direct mode uses the times in generated ids; tasks with ids that
callers chose come last. Other orders have no index: they sort the newest 1,000 tasks that match, and a note says if there are more.")]
pub struct ListArgs {
    /// Maximum number of tasks to show
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub limit: u64,
    /// Show every matching task
    #[arg(long, conflicts_with_all = ["limit", "cursor", "watch"])]
    pub all: bool,
    /// Continue after the end of an earlier list
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Order of the tasks; all orders except newest and id sort only the newest 1,000 tasks that match
    #[arg(long, value_name = "ORDER", default_value = "newest", value_parser = order())]
    pub sort: Sort,
    /// Reverse the order; not with newest and id
    #[arg(long)]
    pub reverse: bool,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// The tasks to list.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// The names of orders. Only the first two have an index.
const ORDERS: [&str; 10] = [
    "newest", "id", "changed", "finished", "due", "type", "queue", "status", "attempts", "priority",
];

/// Parses an order.
fn order() -> impl TypedValueParser<Value = Sort> {
    PossibleValuesParser::new(ORDERS)
        .try_map(|name| serde_json::from_value::<Sort>(serde_json::Value::from(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_a_name() {
        for name in ORDERS {
            assert!(
                serde_json::from_value::<Sort>(name.into()).is_ok(),
                "{name}"
            );
        }
    }
}
