//! Which layers the kernels run: Kimi-K3's, and the edges.

use std::num::NonZeroU8;

use specdec_core::abi::LayerKind;
use specdec_core::config::{layer_kinds, TextConfig};
use specdec_core::geometry::{Geometry, ALL, K3};
use specdec_core::ids::Layer;

use crate::served;

fn kimi() -> TextConfig {
    served().model_config.hf_text_config
}

fn of(text: &TextConfig, kind: LayerKind) -> Vec<u8> {
    layer_kinds(text).iter().filter(|(_, k)| **k == kind).map(|(layer, _)| layer.0).collect()
}

#[test]
fn kimi_k3_has_68_whole_and_24_half_layers() {
    let text = kimi();
    let halves: Vec<u8> = (3..92).step_by(4).chain([92]).collect();
    assert_eq!((of(&text, LayerKind::Ffn).len(), of(&text, LayerKind::Ffn)), (24, halves.clone()));
    let whole: Vec<u8> = (1..93).filter(|layer| !halves.contains(layer)).collect();
    assert_eq!((of(&text, LayerKind::Whole).len(), of(&text, LayerKind::Whole)), (68, whole));
}

/// The kernels' geometries and the models' configurations follow one rule.
#[test]
fn geometries_agree_with_their_configurations() {
    for geometry in ALL {
        let kinds = layer_kinds(&text_of(geometry));
        for layer in (0..geometry.num_layers as u8).map(Layer) {
            assert_eq!(kinds.get(&layer).copied(), geometry.layer_kind(layer), "{} {layer}", geometry.name);
        }
    }
}

fn text_of(geometry: &Geometry) -> TextConfig {
    let mut text = kimi();
    text.num_hidden_layers = Some(geometry.num_layers as u8);
    text.attn_res_block_size = NonZeroU8::new(geometry.attn_res_block_size as u8);
    let kda = (0..geometry.num_layers).filter(|layer| !geometry.mla_layers.contains(layer));
    text.linear_attn_config
        .iter_mut()
        .for_each(|config| config.kda_layers = kda.clone().map(|l| l as u16 + 1).collect());
    text
}

#[test]
fn edges() {
    let with = |change: fn(&mut TextConfig)| {
        let mut text = kimi();
        change(&mut text);
        (of(&text, LayerKind::Whole), of(&text, LayerKind::Ffn))
    };
    let none = (vec![], vec![]);
    assert_eq!(with(|t| t.attn_res_block_size = None), none);
    assert_eq!(with(|t| t.num_experts = None), none);
    assert_eq!(with(|t| t.num_hidden_layers = Some(1)), none);
    assert_eq!(with(|t| t.num_hidden_layers = None), none);
    let (whole, halves) = with(|t| t.moe_layer_freq = NonZeroU8::new(2));
    assert!(whole.iter().chain(&halves).all(|layer| layer % 2 == 0) && halves == [92]);
    let (whole, halves) = with(|t| t.first_k_dense_replace = 3);
    assert_eq!((whole[0], halves[0]), (4, 3));
    assert_eq!(with(|t| t.first_k_dense_replace = 0), with(|_| ()), "layer 0 has no block before it");
    // Blocks of 13: layers 39 and 91 are MLA and write one, so nobody serves them; a KDA layer that writes one is served.
    let (whole, halves) = with(|t| t.attn_res_block_size = NonZeroU8::new(13));
    assert!(!halves.contains(&39) && !halves.contains(&91) && whole.contains(&13));
    assert_eq!(whole.len() + halves.len(), K3.num_layers as usize - 3);
    assert_eq!(with(|t| t.linear_attn_config = None).0, [0; 0]);
}
