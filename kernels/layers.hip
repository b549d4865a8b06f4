// A run of decoder layers in one launch: whole KDA layers, or first the half of an MLA layer behind its attention.
//
// Every workgroup of every rank walks the same stages in the same order; what it does in a stage is in the task table.
// See docs/design.md for the exchanges, and crates/specdec-core/src/event_graph for why no region is overwritten early.
#include "specdec/geometry_generated.hpp"
#include "stages/begin.hpp"
#include "stages/down.hpp"
#include "stages/expert_up.hpp"
#include "stages/hidden_gemv.hpp"
#include "stages/kda.hpp"
#include "stages/latent_norm.hpp"
#include "stages/o_proj.hpp"
#include "stages/output.hpp"
#include "stages/route.hpp"
#include "stages/scrub.hpp"
#include "stages/seam_dots.hpp"
#include "stages/seam_mix.hpp"
#include "stages/self_test.hpp"
#include "stages/up.hpp"

namespace specdec {

template <class G>
SPECDEC_DEVICE void run_layers() {
  auto& first = *arch::constant<abi::LayerDescriptor>(arch::kernel_arguments<LaunchArgs>().layers);
  Context context = begin<G>(first.layer);

#pragma clang loop unroll(disable)
  for (;;) {
    // The attention half, then the MLP half: one copy of the seam and of the hidden GEMV serves both.
#pragma clang loop unroll(disable)
    for (uint32_t half = 0; half < 2; ++half) {
      arch::forget_uniform(half);
      const bool mlp = half == 1;
      const auto layer = [&]() -> Descriptor& {
        return *arch::reread(arch::constant<abi::LayerDescriptor>(context.args().layers) + context.layer_in_run);
      };
      context.layer = layer().layer;
      const bool whole = layer().kind == uint32_t(abi::LayerKind::Whole);
      if (mlp || whole) {
        const SeamSources sources = seam_dots<G>(context, layer(), mlp);
        seam_mix<G>(context, layer(), mlp, sources);
        hidden_gemv<G>(context, layer(), mlp);
      }
      if (!mlp) {
        if (whole) kda<G>(context, layer());
        o_proj<G>(context, layer());
      } else {
        route<G>(context, layer());
        expert_up<G>(context, layer());
        down<G>(context, layer());
        latent_norm<G>(context);
        up<G>(context, layer());
      }
    }
    if (context.layer_in_run + 1 == context.args().num_layers) {
      scrub<G>(context);
      output<G>(context);
      return end(context);
    }
    ++context.layer_in_run;
  }
}

}  // namespace specdec

#define SPECDEC_PASTE(name, ranks) name##Tp##ranks
#define SPECDEC_BUILD(name, ranks) SPECDEC_PASTE(name, ranks)

SPECDEC_KERNEL layers([[maybe_unused]] specdec::abi::LaunchArgs args) {
  specdec::run_layers<specdec::geometry::SPECDEC_BUILD(SPECDEC_GEOMETRY, SPECDEC_RANKS)>();
}

SPECDEC_KERNEL self_test([[maybe_unused]] specdec::abi::LaunchArgs args) {
  specdec::self_test<specdec::geometry::SPECDEC_BUILD(SPECDEC_GEOMETRY, SPECDEC_RANKS)>();
}
