//! The figures beside their budgets.

use crate::load::Figures;
use qo_fixtures::Report;

/// A budget for each figure of a load, as it is printed.
pub(crate) type Budgets = [&'static str; 8];

pub(crate) const ONE: Budgets = [
    "at most 5.1",
    "at most 1.2",
    "at most 0.1",
    "",
    "at most 0.05",
    "under 27",
    "at least 300",
    "",
];
pub(crate) const FOUR: Budgets = [
    "at most 5.3",
    "at most 1.6",
    "at most 0.2",
    "",
    "at most 0.05",
    "under 30",
    "",
    "",
];
pub(crate) const SIXTEEN: Budgets = ["", "", "", "", "at most 0.05", "", "", ""];
pub(crate) const SQLITE: Budgets = ["", "", "", "", "", "", "", "at least 2000"];

/// Adds the figures of a load, in the order of [`Budgets`].
pub(crate) fn add_load(report: &mut Report, scenario: &str, figures: &Figures, budgets: Budgets) {
    let rows = [
        ("PUT a task", figures.puts),
        ("GET a task", figures.gets),
        ("LIST a task", figures.lists),
        ("DELETE requests a task", figures.deletes),
        ("claims that lost a race, as a part of all", figures.lost),
        ("dollars a million tasks", figures.dollars_per_million),
        ("tasks a second, claim to completed", figures.rate),
        ("tasks a second, submit to completed", figures.overall_rate),
    ];
    for ((name, value), budget) in rows.into_iter().zip(budgets) {
        report.figure(scenario, name, value, budget);
    }
    report.figure(scenario, "submits a second", figures.submit_rate, "");
}
