//! `FAKE_HIP_OPTIONS`: the emulator's settings as JSON.

use serde::Deserialize;
use specdec_emu::machine::{Options, Schedule, Stall};

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Turns,
    Priorities,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WhenStuck {
    #[default]
    Error,
    Advance,
}

/// The keys, all of them optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    seed: u64,
    schedule: Order,
    stall: WhenStuck,
    /// With `"stall": "advance"`: how far the clock jumps, in ticks of 10 ns; a second if it is not given.
    advance_ticks: Option<u64>,
    budget: Option<u64>,
    quantum: Option<u64>,
    compute_units: Option<u32>,
    /// From this graph launch on, counted from 0, graphs copy nothing: what they should write keeps its old value.
    stale_from_launch: Option<u64>,
}

/// What the machine is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub emulator: Options,
    pub stale_from_launch: Option<u64>,
}

const SECOND_TICKS: u64 = 100_000_000;

/// The setup for so many devices; `text` may be empty.
pub fn parse(devices: usize, text: &str) -> Result<Setup, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let settings: Settings = serde_json::from_str(text).map_err(|error| format!("FAKE_HIP_OPTIONS: {error}"))?;
    let mut options = Options { ranks: devices, seed: settings.seed, ..Options::default() };
    options.schedule = match settings.schedule {
        Order::Turns => Schedule::Turns,
        Order::Priorities => Schedule::Priorities,
    };
    options.stall = match settings.stall {
        WhenStuck::Error => Stall::Error,
        WhenStuck::Advance => Stall::Advance(settings.advance_ticks.unwrap_or(SECOND_TICKS).max(1)),
    };
    options.budget = settings.budget.unwrap_or(options.budget);
    options.quantum = settings.quantum.unwrap_or(options.quantum);
    options.model.compute_units = settings.compute_units.unwrap_or(options.model.compute_units);
    Ok(Setup { emulator: options, stale_from_launch: settings.stale_from_launch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_the_emulator_and_unknown_ones_are_refused() {
        let text = r#"{"seed": 7, "schedule": "priorities", "stall": "advance", "compute_units": 8}"#;
        let options = parse(2, text).expect("they are known").emulator;
        assert_eq!((options.ranks, options.seed, options.model.compute_units), (2, 7, 8));
        assert_eq!((options.schedule, options.stall), (Schedule::Priorities, Stall::Advance(SECOND_TICKS)));
        assert_eq!(parse(3, " ").map(|setup| setup.emulator), Ok(Options { ranks: 3, ..Options::default() }));
        assert!(parse(1, r#"{"sead": 7}"#).is_err_and(|text| text.contains("sead")));
    }
}
