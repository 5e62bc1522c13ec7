//! Figures beside their budgets.

/// What was measured.
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
