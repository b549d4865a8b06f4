//! A layer's descriptor from named addresses and numbers, every problem in one error.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::abi::{LayerDescriptor, LayerKind, NONE};
use crate::geometry::Geometry;
use crate::guards::{needed, KDA_NUMBERS, NUMBERS};
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

/// Of a KDA layer besides its weights.
const STATES: [&str; 2] = ["conv_state", "recurrent_state"];
const STATE_NUMBERS: [&str; 7] = [
    "conv_slot_stride",
    "conv_channel_stride",
    "conv_token_stride",
    "recurrent_slot_stride",
    "num_slots",
    "state_group",
    "gate_lower_bound",
];

/// Where a layer stands in its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the kernels run of it.
    pub kind: LayerKind,
    /// The layer.
    pub layer: Layer,
    /// Blocks in the bank before it.
    pub num_blocks: u32,
    /// Block that it writes.
    pub block_write: Option<u32>,
}

impl Place {
    /// A layer's place in a geometry's stack; `None`: the kernels do not serve it.
    pub fn of(geometry: &Geometry, layer: Layer) -> Option<Self> {
        let kind = geometry.layer_kind(layer).filter(|_| u32::from(layer.0) < geometry.num_layers)?;
        let block_write = geometry.is_block_write(layer).then(|| u32::from(layer.0) / geometry.attn_res_block_size);
        Some(Self { kind, layer, num_blocks: geometry.prev_valid_blocks(layer), block_write })
    }
}

/// An integer as a named number; those that the fields hold are exact up to 2 to the 53rd.
#[expect(clippy::cast_precision_loss, reason = "no memory holds 2 to the 53rd elements")]
pub const fn number(value: u64) -> f64 {
    value as f64
}

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

/// The descriptor of one layer of a geometry's stack: weights and states by field name.
pub fn descriptor(
    geometry: &Geometry,
    layer: Layer,
    addresses: &BTreeMap<String, u64>,
    numbers: &BTreeMap<String, f64>,
) -> Result<LayerDescriptor, BindingError> {
    let place = Place::of(geometry, layer).ok_or_else(|| BindingError {
        layer,
        problems: vec![format!("the kernels do not serve it in `{}`", geometry.name)],
    })?;
    descriptor_at(&place, addresses, numbers)
}

/// The same of a layer at a known place.
pub fn descriptor_at(
    place: &Place,
    addresses: &BTreeMap<String, u64>,
    numbers: &BTreeMap<String, f64>,
) -> Result<LayerDescriptor, BindingError> {
    let &Place { kind, layer, num_blocks, block_write } = place;
    let whole = kind == LayerKind::Whole;
    let states: &[&str] = if whole { &STATES } else { &[] };
    let (kda, state_numbers) = if whole { (&KDA_NUMBERS[..], &STATE_NUMBERS[..]) } else { (&[][..], &[][..]) };
    let needed = needed(kind).map(|tensor| tensor.field).chain(states.iter().copied());
    let needed_numbers = NUMBERS.iter().chain(kda).map(|(field, _)| *field).chain(state_numbers.iter().copied());
    let mut problems: Vec<String> = needed
        .filter(|name| !addresses.contains_key(*name))
        .map(|name| format!("no address `{name}`"))
        .chain(needed_numbers.filter(|name| !numbers.contains_key(*name)).map(|name| format!("no number `{name}`")))
        .collect();

    let mut descriptor = LayerDescriptor {
        kind: kind as u32,
        layer: u32::from(layer.0),
        num_blocks,
        block_write: block_write.unwrap_or(NONE),
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
