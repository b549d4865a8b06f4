//! Descriptors from checked facts, slices of a rank, and fingerprints.

use proptest::prelude::*;
use specdec_core::abi::{LayerDescriptor, LayerKind, StateGroup, NONE};
use specdec_core::guards::{
    binding_fingerprint, weight_reasons, CheckedCache, CheckedLayer, CheckedWeights, KindFacts, LayerFacts, ModelFacts,
};
use specdec_core::ids::Rank;

use crate::model::{cache, layer, model, shard, tensor, K3_TENSORS};

fn weights(rank: u8, facts: &LayerFacts) -> Result<CheckedWeights, String> {
    CheckedWeights::check(&shard(), Rank(rank), facts).map_err(|reasons| format!("{reasons:?}"))
}

fn bound(rank: u8, facts: &LayerFacts) -> Result<LayerDescriptor, String> {
    let states = CheckedCache::check(&shard(), 7, &cache("kda.1")).map_err(|reasons| format!("{reasons:?}"))?;
    let states = Some((&states, 2)).filter(|_| facts.kind == KindFacts::Whole);
    let layer = CheckedLayer::bind(&weights(rank, facts)?, states).map_err(|error| error.to_string())?;
    Ok(*layer.descriptor())
}

#[test]
fn a_descriptor_holds_each_address_and_number() -> Result<(), String> {
    let facts = layer(12, KindFacts::Whole);
    let found = bound(0, &facts)?;
    for (field, value) in [
        ("in_proj", found.in_proj),
        ("f_b", found.f_b),
        ("router", found.router),
        ("w13", found.w13),
        ("w2_scale", found.w2_scale),
        ("attention_seam.logit", found.attention_seam.logit),
        ("mlp_seam.output", found.mlp_seam.output),
    ] {
        assert_eq!(Some(value), facts.tensors.get(field).map(|tensor| tensor.address), "{field}");
    }
    assert_eq!((found.kind, found.layer, found.num_blocks, found.block_write), (LayerKind::Whole as u32, 12, 1, 1));
    assert_eq!((found.state_group, found.num_slots), (2, 40));
    assert_eq!((found.conv_slot_stride, found.conv_channel_stride, found.conv_token_stride), (1 << 20, 1, 4608));
    assert_eq!((found.recurrent_slot_stride, found.gate_lower_bound), (1 << 19, -5.0));
    assert_eq!((found.latent_eps, found.o_norm_eps, found.attention_seam.output_eps), (1e-5, 1e-5, 1e-5));
    let half = bound(0, &layer(3, KindFacts::Ffn))?;
    assert_eq!((half.kind, half.block_write, half.in_proj, half.conv_state), (LayerKind::Ffn as u32, NONE, 0, 0));
    Ok(())
}

#[test]
fn a_rank_reads_its_own_rows() -> Result<(), String> {
    let mut facts = layer(3, KindFacts::Ffn);
    let first = bound(0, &facts)?;
    let last = bound(7, &facts)?;
    assert_eq!(last.router - first.router, 7 * 112 * 7168 * 2);
    assert_eq!(last.latent_down - first.latent_down, 7 * 448 * 7168 * 2);
    assert_eq!(last.up, first.up, "loaded row-sharded");
    assert_eq!((last.o_proj, last.w13), (first.o_proj, first.w13));
    facts.row_sharded = false;
    facts.tensors.insert("up".into(), tensor(1 << 50, &[7168, 3584], "bfloat16"));
    assert_eq!(bound(5, &facts)?.up, (1 << 50) + 5 * 896 * 3584 * 2);
    Ok(())
}

#[test]
fn a_kda_layer_needs_its_states_and_an_mla_half_has_none() -> Result<(), String> {
    let whole = CheckedLayer::bind(&weights(0, &layer(1, KindFacts::Whole))?, None).err().map(|e| e.to_string());
    assert!(whole.is_some_and(|text| text.contains("no address `conv_state`")));
    Ok(())
}

#[test]
fn fingerprints_tell_apart_what_a_launch_bakes_in() -> Result<(), String> {
    let layers = vec![bound(0, &layer(1, KindFacts::Whole))?, bound(0, &layer(2, KindFacts::Whole))?];
    let groups = [StateGroup { state_indices: 16, num_accepted: 32, row_stride: 8, reserved: 0 }];
    let before = binding_fingerprint(&layers, &groups);
    assert_eq!(before, binding_fingerprint(&layers.clone(), &groups));
    let mut seen = vec![before];
    for change in 0..5 {
        let (mut layers, mut groups) = (layers.clone(), groups);
        match change {
            0 => layers[1].w13 += 16,
            1 => layers[0].conv_slot_stride += 1,
            2 => layers.swap(0, 1),
            3 => groups[0].row_stride += 1,
            _ => drop(layers.pop()),
        }
        seen.push(binding_fingerprint(&layers, &groups));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 6);
    Ok(())
}

proptest! {
    /// A change of one tensor of one layer gives exactly one reason, which names it, and no descriptor.
    #[test]
    fn one_bad_tensor_is_one_reason(
        at in 0..K3_TENSORS.len(), layer_at in 0_usize..4, dimension in 0_usize..3, delta in 1_u64..9, how in 0..3,
    ) {
        let mut model: ModelFacts = model();
        let facts = &mut model.layers[layer_at];
        let field = K3_TENSORS[at].0;
        prop_assume!(facts.tensors.contains_key(field));
        let mut spoilt = facts.tensors[field].clone();
        let dimension = dimension % spoilt.shape.0.len();
        match how {
            0 => spoilt.shape.0[dimension] += delta,
            1 => spoilt.strides[dimension] += delta,
            _ => spoilt.address += 1,
        }
        // A dimension of one element may have any stride.
        prop_assume!(how != 1 || spoilt.shape.0[dimension] != 1);
        facts.tensors.insert(field.into(), spoilt);
        let refused = CheckedWeights::check(&shard(), Rank(0), facts).is_err();
        let layer = facts.layer;
        let reasons: Vec<String> = weight_reasons(&shard(), &model).iter().map(ToString::to_string).collect();
        prop_assert_eq!(reasons.len(), 1, "{:?}", reasons);
        prop_assert!(reasons[0].starts_with(&format!("{layer} ")), "{:?}", reasons);
        prop_assert!(refused);
    }
}
