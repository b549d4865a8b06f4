//! A layer's descriptor from named addresses and numbers, every problem in one error.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::abi::{LayerDescriptor, LayerKind, NONE};
use crate::geometry::Geometry;
use crate::ids::Layer;

/// Everything that is wrong with a layer's binding.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{layer} cannot be bound: {}", problems.join("; "))]
pub struct BindingError {
    /// Layer.
    pub layer: Layer,
    /// Every problem.
    pub problems: Vec<String>,
}

const SEAM: [&str; 3] = ["norm", "logit", "output"];
const EVERY_LAYER: [&str; 12] = [
    "o_proj",
    "router",
    "router_bias",
    "latent_down",
    "shared_gate_up",
    "shared_down",
    "w13",
    "w13_scale",
    "w2",
    "w2_scale",
    "latent_norm",
    "up",
];
const KDA: [&str; 8] = ["in_proj", "f_b", "conv", "a_log", "dt_bias", "o_norm", "conv_state", "recurrent_state"];
const KDA_NUMBERS: [&str; 8] = [
    "conv_slot_stride",
    "conv_channel_stride",
    "conv_token_stride",
    "recurrent_slot_stride",
    "num_slots",
    "state_group",
    "gate_lower_bound",
    "o_norm_eps",
];

/// Where a named address goes.
fn address<'a>(descriptor: &'a mut LayerDescriptor, name: &str) -> Option<&'a mut u64> {
    if let Some((seam, field)) = name.split_once('.') {
        let seam = match seam {
            "attention_seam" => &mut descriptor.attention_seam,
            "mlp_seam" => &mut descriptor.mlp_seam,
            _ => return None,
        };
        return match field {
            "norm" => Some(&mut seam.norm),
            "logit" => Some(&mut seam.logit),
            "output" => Some(&mut seam.output),
            _ => None,
        };
    }
    macro_rules! fields {
        ($($field:ident)*) => { match name { $(stringify!($field) => Some(&mut descriptor.$field),)* _ => None } };
    }
    fields! { in_proj f_b conv a_log dt_bias o_norm o_proj router router_bias latent_down shared_gate_up shared_down
    w13 w13_scale w2 w2_scale latent_norm up conv_state recurrent_state }
}

/// Stores a named number; false if there is none of that name.
fn set_number(descriptor: &mut LayerDescriptor, name: &str, value: f64) -> bool {
    macro_rules! fields {
        ($($name:literal => $($field:ident).+ as $type:ty,)*) => {
            match name { $($name => descriptor.$($field).+ = value as $type,)* _ => return false }
        };
    }
    fields! {
        "attention_seam.eps" => attention_seam.eps as f32,
        "attention_seam.output_eps" => attention_seam.output_eps as f32,
        "mlp_seam.eps" => mlp_seam.eps as f32,
        "mlp_seam.output_eps" => mlp_seam.output_eps as f32,
        "conv_slot_stride" => conv_slot_stride as u64,
        "conv_channel_stride" => conv_channel_stride as u32,
        "conv_token_stride" => conv_token_stride as u32,
        "recurrent_slot_stride" => recurrent_slot_stride as u64,
        "num_slots" => num_slots as u32,
        "state_group" => state_group as u32,
        "gate_lower_bound" => gate_lower_bound as f32,
        "o_norm_eps" => o_norm_eps as f32,
        "latent_eps" => latent_eps as f32,
    }
    true
}

/// The descriptor of one layer: weights and states by field name, what the geometry knows from the geometry.
pub fn descriptor(
    geometry: &Geometry,
    layer: Layer,
    addresses: &BTreeMap<String, u64>,
    numbers: &BTreeMap<String, f64>,
) -> Result<LayerDescriptor, BindingError> {
    let mut problems = Vec::new();
    let kind = geometry.layer_kind(layer).filter(|_| u32::from(layer.0) < geometry.num_layers);
    let Some(kind) = kind else {
        return Err(BindingError {
            layer,
            problems: vec![format!("the kernels do not serve it in `{}`", geometry.name)],
        });
    };
    let whole = kind == LayerKind::Whole;
    let seams: &[&str] = if whole { &["attention_seam", "mlp_seam"] } else { &["mlp_seam"] };
    let mut needed: Vec<String> = EVERY_LAYER.iter().map(|&name| name.into()).collect();
    let mut needed_numbers = vec!["latent_eps".to_owned()];
    for seam in seams {
        needed.extend(SEAM.iter().map(|field| format!("{seam}.{field}")));
        needed_numbers.extend(["eps", "output_eps"].map(|field| format!("{seam}.{field}")));
    }
    if whole {
        needed.extend(KDA.map(String::from));
        needed_numbers.extend(KDA_NUMBERS.map(String::from));
    }
    problems
        .extend(needed.iter().filter(|name| !addresses.contains_key(*name)).map(|name| format!("no address `{name}`")));
    let missing = needed_numbers.iter().filter(|name| !numbers.contains_key(*name));
    problems.extend(missing.map(|name| format!("no number `{name}`")));

    let mut descriptor = LayerDescriptor {
        kind: kind as u32,
        layer: u32::from(layer.0),
        num_blocks: geometry.prev_valid_blocks(layer),
        block_write: if geometry.is_block_write(layer) {
            u32::from(layer.0) / geometry.attn_res_block_size
        } else {
            NONE
        },
        ..LayerDescriptor::default()
    };
    for (name, &value) in addresses {
        match address(&mut descriptor, name) {
            Some(field) if value != 0 => *field = value,
            Some(_) => problems.push(format!("address `{name}` is null")),
            None => problems.push(format!("unknown address `{name}`")),
        }
    }
    for (name, &value) in numbers {
        if !set_number(&mut descriptor, name, value) {
            problems.push(format!("unknown number `{name}`"));
        }
    }
    if problems.is_empty() {
        Ok(descriptor)
    } else {
        Err(BindingError { layer, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::NANO;

    #[test]
    fn every_problem_is_listed() {
        let addresses = BTreeMap::from([("w13".to_owned(), 0), ("w14".to_owned(), 5)]);
        let numbers = BTreeMap::from([("latent_epsilon".to_owned(), 1.0)]);
        let problems = descriptor(&NANO, Layer(3), &addresses, &numbers).err().map(|e| e.problems).unwrap_or_default();
        for expected in [
            "no address `o_proj`",
            "address `w13` is null",
            "unknown address `w14`",
            "no number `latent_eps`",
            "unknown number `latent_epsilon`",
            "no address `mlp_seam.norm`",
        ] {
            assert!(problems.iter().any(|p| p == expected), "{expected}: {problems:?}");
        }
        assert!(!problems.iter().any(|p| p.contains("in_proj")), "an MLA half has no in_proj: {problems:?}");
        assert!(descriptor(&NANO, Layer(0), &addresses, &numbers).is_err());
        assert!(descriptor(&NANO, Layer(6), &addresses, &numbers).is_err());
    }
}
