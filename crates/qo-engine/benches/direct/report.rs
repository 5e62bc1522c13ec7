//! The figures beside their budgets.

use crate::load::Figures;

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

pub(crate) struct Report {
    json: bool,
    rows: Vec<(String, String, f64, String)>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            rows: Vec::new(),
        }
    }

    pub(crate) fn figure(&mut self, scenario: &str, name: &str, value: f64, budget: &str) {
        if !self.json {
            let verdict = match kept(value, budget) {
                None => "",
                Some(true) => "kept",
                Some(false) => "MISSED",
            };
            println!("{scenario:<9}{name:<50}{value:>12.3}   {budget:<16}{verdict}");
        }
        self.rows
            .push((scenario.into(), name.into(), value, budget.into()));
    }

    pub(crate) fn load(&mut self, scenario: &str, figures: &Figures, budgets: Budgets) {
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
            self.figure(scenario, name, value, budget);
        }
        self.figure(scenario, "submits a second", figures.submit_rate, "");
    }

    pub(crate) fn print(&self) {
        if !self.json {
            return;
        }
        for (scenario, name, value, budget) in &self.rows {
            println!(
                "{}",
                serde_json::json!({"scenario": scenario, "figure": name, "value": value, "budget": budget, "kept": kept(*value, budget)})
            );
        }
    }
}

fn kept(value: f64, budget: &str) -> Option<bool> {
    let (kind, limit) = budget.rsplit_once(' ')?;
    let limit: f64 = limit.parse().ok()?;
    Some(match kind {
        "at least" => value >= limit,
        "under" => value < limit,
        _ => value <= limit,
    })
}
