"""The canonical kind of an ATen op, shared by all frameworks, by its name without the underscore of in-place ops.

A view that the table does not name is `reshape`. Any other op that it does not name has the kind of PyTorch's tag:
`pointwise` is elementwise, `view_copy` reshape, `reduction` reduce. Without such a tag it is `other`: it has no flops,
and its graph lists it.

The file is long because the table is one idea: every op that a step may call stands in one line of its kind.
"""

from __future__ import annotations

import torch

from gnnplace.frontends.torch.calls import Call

_KINDS = {
    "matmul": (
        "mm addmm mv addmv dot vdot addr _addmm_activation _int_mm _scaled_mm _scaled_mm_v2 _weight_int8pack_mm "
        "_weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros "
        "_dyn_quant_matmul_4bit _mixed_dtypes_linear mkldnn_linear affine_grid_generator quantized::linear "
        "quantized::linear_relu quantized::linear_dynamic quantized::linear_relu_dynamic"
    ),
    "batch_matmul": (
        "bmm baddbmm addbmm _foreach_mm _grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2 _trilinear "
        "transformers::grouped_mm_fallback transformers::grouped_mm_fallback_backward _cdist_forward _cdist_backward "
        "_euclidean_dist _pdist_forward _pdist_backward mkldnn_rnn_layer mkldnn_rnn_layer_backward _cudnn_rnn "
        "_cudnn_rnn_backward miopen_rnn miopen_rnn_backward linalg_cholesky_ex cholesky cholesky_inverse "
        "cholesky_solve _cholesky_solve_helper _linalg_det _linalg_slogdet _linalg_solve_ex linalg_inv_ex linalg_lu "
        "linalg_lu_factor_ex linalg_lu_solve linalg_ldl_factor_ex linalg_ldl_solve linalg_qr geqrf "
        "linalg_householder_product ormqr linalg_lstsq linalg_solve_triangular triangular_solve _linalg_eigh "
        "linalg_eig _linalg_eigvals _linalg_svd linalg_pinv linalg_matrix_exp"
    ),
    "conv": (
        "convolution _convolution convolution_overrideable cudnn_convolution cudnn_convolution_relu "
        "cudnn_convolution_add_relu cudnn_convolution_transpose miopen_convolution miopen_convolution_relu "
        "miopen_convolution_add_relu miopen_convolution_transpose miopen_depthwise_convolution mkldnn_convolution "
        "_slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d "
        "slow_conv_transpose3d conv_tbc _conv_depthwise2d conv_depthwise3d _nnpack_spatial_convolution"
    ),
    "conv_grad_input": "convolution_backward convolution_backward_overrideable _slow_conv2d_backward",
    "pool": (
        "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d max_pool3d_with_indices avg_pool3d "
        "_adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d "
        "quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d upsample_linear1d upsample_bilinear2d "
        "upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "_upsample_lanczos2d_aa grid_sampler_2d _grid_sampler_2d_cpu_fallback grid_sampler_3d cudnn_grid_sampler"
    ),
    "pool_grad": (
        "max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward "
        "max_pool3d_with_indices_backward avg_pool3d_backward _adaptive_avg_pool3d_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward adaptive_avg_pool3d_backward max_pool2d_backward "
        "fractional_max_pool2d_backward fractional_max_pool3d_backward upsample_linear1d_backward "
        "upsample_bilinear2d_backward upsample_trilinear3d_backward upsample_bicubic2d_backward "
        "_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward _upsample_lanczos2d_aa_backward "
        "grid_sampler_2d_backward _grid_sampler_2d_cpu_fallback_backward grid_sampler_3d_backward "
        "cudnn_grid_sampler_backward"
    ),
    "normalization": (
        "native_layer_norm native_batch_norm native_group_norm _native_batch_norm_legit _fused_rms_norm "
        "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_no_update "
        "_batch_norm_with_update _batch_norm_with_update_functional batch_norm_elemt cudnn_batch_norm "
        "miopen_batch_norm quantized_batch_norm _weight_norm_interface renorm embedding_renorm"
    ),
    "normalization_grad": (
        "native_layer_norm_backward native_batch_norm_backward native_group_norm_backward _fused_rms_norm_backward "
        "batch_norm_backward batch_norm_backward_elemt cudnn_batch_norm_backward miopen_batch_norm_backward "
        "_weight_norm_interface_backward"
    ),
    "softmax": (
        "_softmax _log_softmax _safe_softmax _masked_softmax _softmax_backward_data _log_softmax_backward_data "
        "_masked_softmax_backward"
    ),
    "loss": (
        "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward "
        "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits smooth_l1_loss "
        "smooth_l1_loss_backward huber_loss huber_loss_backward soft_margin_loss soft_margin_loss_backward "
        "multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward multilabel_margin_loss_backward "
        "_ctc_loss _ctc_loss_backward _cudnn_ctc_loss miopen_ctc_loss"
    ),
    "attention": (
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_fused_attention_overrideable_backward "
        "_flash_attention_forward _flash_attention_forward_no_dropout_inplace _flash_attention_backward "
        "_efficient_attention_forward _efficient_attention_backward _cudnn_attention_forward "
        "_cudnn_attention_backward _native_multi_head_attention _transformer_encoder_layer_fwd"
    ),
    "embedding": "embedding _embedding_bag _embedding_bag_forward_only",
    "embedding_grad": (
        "embedding_dense_backward _embedding_bag_backward _embedding_bag_dense_backward "
        "_embedding_bag_per_sample_weights_backward"
    ),
    "elementwise": (
        "add sub mul div rsub pow sqrt rsqrt exp expm1 log log1p neg abs reciprocal maximum minimum where eq ne lt gt "
        "le ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not sin cos erf sign sgn "
        "clamp clamp_min clamp_max floor ceil round addcmul addcdiv lerp masked_fill fmod remainder isnan isinf "
        "isfinite tril triu native_dropout_backward floor_divide _add_relu complex polar copysign gcd lcm heaviside "
        "threshold xlogy __irshift__ linalg_cross _dirichlet_grad _standard_gamma_grad _masked_scale "
        "_transform_bias_rescale_qkv quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize "
        "_make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor "
        "_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_tensor_affine_backward "
        "_fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_channel_affine_backward "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams fake_quantize_per_tensor_affine_cachemask "
        "fake_quantize_per_channel_affine_cachemask _fused_moving_avg_obs_fq_helper "
        "_fused_moving_avg_obs_fq_helper_functional _thnn_fused_lstm_cell _thnn_fused_gru_cell "
        "_thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell_backward _segment_reduce_backward "
        "_compute_linear_combination _amp_foreach_non_finite_check_and_unscale _amp_update_scale"
    ),
    "activation": (
        "relu gelu silu tanh sigmoid elu leaky_relu hardtanh hardswish softplus mish glu log_sigmoid_forward "
        "_prelu_kernel rrelu_with_noise rrelu_with_noise_functional glu_jvp"
    ),
    "activation_grad": (
        "threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward elu_backward "
        "leaky_relu_backward hardtanh_backward hardswish_backward softplus_backward mish_backward glu_backward "
        "log_sigmoid_backward _prelu_kernel_backward rrelu_with_noise_backward hardshrink_backward "
        "softshrink_backward hardsigmoid_backward glu_backward_jvp"
    ),
    "reduce": (
        "sum mean amax amin max min prod var std var_mean std_mean argmax argmin any all logsumexp linalg_vector_norm "
        "linalg__powsum _foreach_powsum norm native_norm dist nansum count_nonzero aminmax _aminmax median nanmedian "
        "mode kthvalue trace cumsum cumprod cummax cummin logcumsumexp _logcumsumexp topk sort histc histogram "
        "bincount _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors _unique _unique2 "
        "unique_dim unique_dim_consecutive unique_consecutive nonzero nonzero_static masked_select isin searchsorted "
        "bucketize hash_tensor _is_all_true _is_any_true segment_reduce _fft_c2c _fft_r2c _fft_c2r col2im "
        "unfold_backward reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward "
        "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward batch_norm_stats "
        "batch_norm_backward_reduce batch_norm_update_stats batch_norm_gather_stats "
        "batch_norm_gather_stats_with_counts upsample_nearest1d_backward upsample_nearest2d_backward "
        "upsample_nearest3d_backward _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward "
        "_upsample_nearest_exact3d_backward"
    ),
    "concat": (
        "cat stack _stack _chunk_cat constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
        "replication_pad1d replication_pad2d replication_pad3d block_diag"
    ),
    "split": "split split_with_sizes unsafe_split unsafe_split_with_sizes unbind",
    "slice": (
        "slice select slice_backward select_backward diagonal_backward slice_scatter select_scatter diagonal_scatter "
        "as_strided_scatter index_fill masked_scatter lu_unpack"
    ),
    "transpose": "t transpose permute channel_shuffle pixel_shuffle pixel_unshuffle",
    "reshape": (
        "view _unsafe_view expand squeeze unsqueeze clone copy as_strided alias detach repeat flip unfold diagonal "
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
        "_upsample_nearest_exact3d roll rot90 repeat_interleave diag_embed im2col lift _reshape_copy _copy_from "
        "_copy_from_and_resize _lazy_clone _pin_memory resize resize_as _resize_output set int_repr "
        "_convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight "
        "q_per_channel_scales q_per_channel_zero_points"
    ),
    "gather": (
        "gather index index_select take _unsafe_index _unsafe_masked_index masked_scatter_backward "
        "_pack_padded_sequence _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward to_padded_tensor"
    ),
    "scatter": (
        "scatter scatter_add scatter_reduce index_add index_put _unsafe_index_put _index_put_impl index_copy put "
        "index_reduce _unsafe_masked_index_put_accumulate max_unpool2d max_unpool3d"
    ),
    "cast": "_to_copy",
    "fill": (
        "zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty arange "
        "scalar_tensor fill zero lift_fresh_copy eye linspace logspace range empty_strided new_empty_strided "
        "empty_permuted tril_indices triu_indices _efficientzerotensor fft_fftfreq fft_rfftfreq from_file "
        "empty_quantized _empty_affine_quantized _empty_per_channel_affine_quantized bartlett_window blackman_window "
        "hamming_window hann_window kaiser_window"
    ),
    "random": (
        "bernoulli rand randn rand_like randn_like normal uniform native_dropout normal_functional randint "
        "randint_like random randperm multinomial binomial poisson cauchy exponential geometric log_normal "
        "_standard_gamma _sample_dirichlet _fused_dropout _philox_normal _philox_uniform _philox_key_fold_in "
        "_philox_key_split _fill_mem_eff_dropout_mask"
    ),
    "update": "_fused_adam _fused_adamw _fused_sgd _fused_adagrad gnnplace::update",
}  # fmt: skip
_CANONICAL = {kind.removesuffix("_"): canonical for canonical, kinds in _KINDS.items() for kind in kinds.split()}
_TAGGED = {torch.Tag.pointwise: "elementwise", torch.Tag.view_copy: "reshape", torch.Tag.reduction: "reduce"}


def canonical_kind(call: Call) -> str:
    """The canonical kind of a call; "other" for an unknown op.

    A convolution's backward is `conv_grad_input` if it computes the gradient of the input, else `conv_grad_weight`. An
    op on lists of tensors has the kind of the op on one.
    """
    if call.base.startswith("convolution_backward") and not call.arguments["output_mask"][0]:
        return "conv_grad_weight"
    return kind_of(call.target)


def kind_of(target: torch._ops.OpOverload) -> str:
    """The canonical kind of an op without its arguments."""
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    one = name.removeprefix("_foreach_")
    if (canonical := _CANONICAL.get(name, _CANONICAL.get(one))) is not None:
        return canonical
    if target.is_view:
        return "reshape"
    tagged = next((kind for tag, kind in _TAGGED.items() if tag in target.tags), "other")
    return tagged if one == name else "elementwise"
