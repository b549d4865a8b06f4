//! Environment variables that change what is served.

use super::{is_rocm_machine, visibility, WORKGROUPS};
use crate::doctor::facts::{Environment, Facts};
use crate::doctor::Line;

/// Our entry point among vLLM's plug-ins.
const PLUGIN: &str = "kimi_k3_specdec";

/// Lines about the environment, each under the name of its variable.
pub fn lines(facts: &Facts) -> Vec<Line> {
    let Some(environment) = &facts.environment else { return vec![Line::not_here("environment", "not known")] };
    let is_rocm = is_rocm_machine(facts);
    let mask = |name, value: &Option<String>| cu_mask(name, value.as_deref());
    vec![
        visibility::line(facts, environment),
        mask("HSA_CU_MASK", &environment.hsa_cu_mask),
        mask("ROC_GLOBAL_CU_MASK", &environment.roc_global_cu_mask),
        plugins(environment),
        aiter(environment, is_rocm),
        aiter_moe(environment),
        situ(environment),
        recipe_situ(environment),
        fp4_bmm(environment),
        model_runner(environment),
    ]
}

const UNSET: &str = "unset";

fn shown(value: &str) -> String {
    format!("`{value}`")
}

/// As vLLM reads its AITER switches: anything else is off.
fn is_on(value: &str) -> bool {
    matches!(value.to_lowercase().as_str(), "1" | "true")
}

fn cu_mask(topic: &'static str, value: Option<&str>) -> Line {
    match value {
        None | Some("") => Line::ok(topic, UNSET),
        Some(value) => {
            let hint = format!(
                "unset it: {WORKGROUPS} workgroups must be resident at once, and under a mask they cannot be, \
                                though HIP still reports {WORKGROUPS} compute units"
            );
            Line::problem(topic, shown(value), hint)
        }
    }
}

/// vLLM compares the names between the commas as they are, white space included.
fn plugins(environment: &Environment) -> Line {
    let topic = "VLLM_PLUGINS";
    match environment.vllm_plugins.as_deref() {
        None => Line::ok(topic, "unset: vLLM loads every plug-in"),
        Some(value) if value.split(',').any(|name| name == PLUGIN) => Line::ok(topic, shown(value)),
        Some(value) => {
            let hint = format!(
                "add `{PLUGIN}` to it, without spaces, or unset it: vLLM loads only the plug-ins that it names"
            );
            Line::problem(topic, shown(value), hint)
        }
    }
}

fn aiter(environment: &Environment, is_rocm: bool) -> Line {
    let topic = "VLLM_ROCM_USE_AITER";
    let value = environment.vllm_rocm_use_aiter.as_deref();
    let found = value.map_or_else(|| UNSET.into(), shown);
    if value.is_some_and(is_on) {
        return Line::ok(topic, found);
    }
    if value.is_none() && !is_rocm {
        return Line::not_here(topic, "unset, and no ROCm");
    }
    Line::problem(topic, found, "set VLLM_ROCM_USE_AITER=1: without AITER the specialised decode refuses to start")
}

fn aiter_moe(environment: &Environment) -> Line {
    let topic = "VLLM_ROCM_USE_AITER_MOE";
    match environment.vllm_rocm_use_aiter_moe.as_deref() {
        None => Line::ok(topic, "unset: on"),
        Some(value) if is_on(value) => Line::ok(topic, shown(value)),
        Some(value) => {
            let hint = "set it to 1 or unset it: without AITER's experts the specialised decode refuses to start";
            Line::problem(topic, shown(value), hint)
        }
    }
}

fn situ(environment: &Environment) -> Line {
    let topic = "VLLM_ROCM_USE_AITER_MOE_SITUV2";
    let Some(value) = environment.vllm_rocm_use_aiter_moe_situv2.as_deref() else {
        return Line::ok(topic, "unset: a4w4");
    };
    let hint = match value.to_lowercase().as_str() {
        "auto" | "a4w4" | "1" => return Line::ok(topic, shown(value)),
        "a8w4" => {
            "set it to a4w4 or unset it: a8w4 interleaves the experts' gate and up rows, which the kernels do not read"
        }
        "a16w4" | "0" => {
            "set it to a4w4 or unset it: the kernels' activations are MXFP4, so results would differ from vLLM's"
        }
        _ => "set it to a4w4 or unset it: vLLM does not know this value",
    };
    Line::problem(topic, shown(value), hint)
}

fn recipe_situ(environment: &Environment) -> Line {
    let topic = "AITER_SITUV2_A8W4";
    match environment.aiter_situv2_a8w4.as_deref() {
        None => Line::ok(topic, UNSET),
        Some(value) => Line::ok(topic, shown(value))
            .hint("vLLM 0.33 ignores it and sets it anew from VLLM_ROCM_USE_AITER_MOE_SITUV2; leave it or drop it"),
    }
}

fn fp4_bmm(environment: &Environment) -> Line {
    let topic = "VLLM_ROCM_USE_AITER_FP4BMM";
    match environment.vllm_rocm_use_aiter_fp4bmm.as_deref() {
        Some(value) if is_on(value) => Line::ok(topic, shown(value)),
        value => Line::ok(topic, value.map_or_else(|| UNSET.into(), shown))
            .hint("M1 (the MLA layers' attention half) is not available, and DCP1, which needs it, is refused"),
    }
}

/// vLLM reads a number here and nothing else.
fn model_runner(environment: &Environment) -> Line {
    let topic = "VLLM_USE_V2_MODEL_RUNNER";
    let Some(value) = environment.vllm_use_v2_model_runner.as_deref() else {
        return Line::ok(topic, "unset: vLLM chooses");
    };
    match value.trim().parse::<i64>() {
        Ok(0) => Line::problem(topic, shown(value), "set it to 1 or unset it: the decode needs the V2 model runner"),
        Ok(_) => Line::ok(topic, shown(value)),
        Err(_) => {
            Line::problem(topic, shown(value), "set it to 1 or unset it: vLLM stops at a value that is no number")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{line, served};
    use super::*;
    use crate::doctor::State;

    fn with(change: impl FnOnce(&mut Environment)) -> Facts {
        let mut facts = served();
        change(facts.environment.get_or_insert_default());
        facts
    }

    fn verdict(topic: &'static str, change: impl FnOnce(&mut Environment)) -> (State, bool) {
        let line = line(&with(change), topic);
        (line.state, line.hint.is_some())
    }

    const FINE: (State, bool) = (State::Ok, false);
    const NOTED: (State, bool) = (State::Ok, true);
    const BAD: (State, bool) = (State::Problem, true);

    #[test]
    fn masks_are_problems_whatever_they_hold() {
        assert_eq!(verdict("HSA_CU_MASK", |_| ()), FINE);
        assert_eq!(verdict("HSA_CU_MASK", |e| e.hsa_cu_mask = Some("0:0-255".into())), BAD);
        assert_eq!(verdict("ROC_GLOBAL_CU_MASK", |e| e.roc_global_cu_mask = Some("0xf".into())), BAD);
    }

    #[test]
    fn plug_ins_are_named_exactly() {
        let plugins = |value: &str| verdict("VLLM_PLUGINS", |e| e.vllm_plugins = Some(value.into()));
        assert_eq!(plugins("other,kimi_k3_specdec"), FINE);
        for value in ["", "other", "other, kimi_k3_specdec", "kimi-k3-specdec", "kimi_k3_specdec2"] {
            assert_eq!(plugins(value), BAD, "{value}");
        }
    }

    #[test]
    fn switches_are_read_as_vllm_reads_them() {
        let aiter =
            |value: Option<&str>| verdict("VLLM_ROCM_USE_AITER", |e| e.vllm_rocm_use_aiter = value.map(Into::into));
        assert_eq!([aiter(Some("1")), aiter(Some("True"))], [FINE; 2]);
        assert_eq!([aiter(None), aiter(Some("0")), aiter(Some("yes")), aiter(Some(""))], [BAD; 4]);
        let moe = |value: &str| verdict("VLLM_ROCM_USE_AITER_MOE", |e| e.vllm_rocm_use_aiter_moe = Some(value.into()));
        assert_eq!([moe("1"), moe("0")], [FINE, BAD]);
        let runner =
            |value: &str| verdict("VLLM_USE_V2_MODEL_RUNNER", |e| e.vllm_use_v2_model_runner = Some(value.into()));
        assert_eq!([runner("1"), runner("0"), runner("true")], [FINE, BAD, BAD]);
        let bmm = |value: Option<&str>| {
            verdict("VLLM_ROCM_USE_AITER_FP4BMM", |e| e.vllm_rocm_use_aiter_fp4bmm = value.map(Into::into))
        };
        assert_eq!([bmm(Some("1")), bmm(Some("0")), bmm(None)], [FINE, NOTED, NOTED]);
    }

    #[test]
    fn expert_layouts_are_told_apart() {
        let topic = "VLLM_ROCM_USE_AITER_MOE_SITUV2";
        let situ = |value: &str| verdict(topic, |e| e.vllm_rocm_use_aiter_moe_situv2 = Some(value.into()));
        assert_eq!(["auto", "a4w4", "A4W4", "1"].map(situ), [FINE; 4]);
        assert_eq!(["a8w4", "A16W4", "0", "a2w2"].map(situ), [BAD; 4]);
        assert_eq!(verdict("AITER_SITUV2_A8W4", |e| e.aiter_situv2_a8w4 = Some("1".into())), NOTED);
    }

    #[test]
    fn without_rocm_an_unset_switch_is_no_problem() {
        let facts = Facts { environment: Some(Environment::default()), ..Facts::default() };
        assert_eq!(line(&facts, "VLLM_ROCM_USE_AITER").state, State::NotHere);
        assert_eq!(lines(&Facts::default())[0].state, State::NotHere);
    }

    #[test]
    fn the_names_are_the_keys_of_the_json() {
        let json = serde_json::to_value(Environment::default()).unwrap();
        let mut names = Environment::NAMES.to_vec();
        names.sort_unstable();
        let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, names);
    }
}
