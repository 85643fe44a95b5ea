// OpenVINO's C functions as found in the opened library. Only for openvino*.cpp: needs the headers,
// and those for types alone.
#pragma once

#include <openvino/c/openvino.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "engines/dylib.hpp"

namespace pipeline::openvino {

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

#define PIPELINE_OPENVINO_FUNCTIONS(X)                        \
    X(ov_available_devices_free)                              \
    X(ov_compiled_model_create_infer_request)                 \
    X(ov_compiled_model_free)                                 \
    X(ov_compiled_model_get_context)                          \
    X(ov_compiled_model_get_property)                         \
    X(ov_compiled_model_input_by_index)                       \
    X(ov_compiled_model_inputs_size)                          \
    X(ov_compiled_model_output_by_index)                      \
    X(ov_compiled_model_outputs_size)                         \
    X(ov_core_compile_model_props)                            \
    X(ov_core_create)                                         \
    X(ov_core_free)                                           \
    X(ov_core_get_available_devices)                          \
    X(ov_core_get_property)                                   \
    X(ov_core_read_model)                                     \
    X(ov_core_set_properties)                                 \
    X(ov_free)                                                \
    X(ov_get_error_info)                                      \
    X(ov_get_last_err_msg)                                    \
    X(ov_get_openvino_version)                                \
    X(ov_infer_request_free)                                  \
    X(ov_infer_request_get_input_tensor_by_index)             \
    X(ov_infer_request_get_output_tensor_by_index)            \
    X(ov_infer_request_infer)                                 \
    X(ov_infer_request_set_input_tensor_by_index)             \
    X(ov_infer_request_set_output_tensor_by_index)            \
    X(ov_layout_create)                                       \
    X(ov_layout_free)                                         \
    X(ov_model_const_input_by_index)                          \
    X(ov_model_const_output_by_index)                         \
    X(ov_model_free)                                          \
    X(ov_model_inputs_size)                                   \
    X(ov_model_outputs_size)                                  \
    X(ov_model_reshape_by_port_indexes)                       \
    X(ov_output_const_port_free)                              \
    X(ov_partial_shape_create_static)                         \
    X(ov_partial_shape_free)                                  \
    X(ov_port_get_any_name)                                   \
    X(ov_port_get_element_type)                               \
    X(ov_port_get_partial_shape)                              \
    X(ov_preprocess_input_info_free)                          \
    X(ov_preprocess_input_info_get_model_info)                \
    X(ov_preprocess_input_info_get_preprocess_steps)          \
    X(ov_preprocess_input_info_get_tensor_info)               \
    X(ov_preprocess_input_model_info_free)                    \
    X(ov_preprocess_input_model_info_set_layout)              \
    X(ov_preprocess_input_tensor_info_free)                   \
    X(ov_preprocess_input_tensor_info_set_element_type)       \
    X(ov_preprocess_input_tensor_info_set_layout)             \
    X(ov_preprocess_prepostprocessor_build)                   \
    X(ov_preprocess_prepostprocessor_create)                  \
    X(ov_preprocess_prepostprocessor_free)                    \
    X(ov_preprocess_prepostprocessor_get_input_info_by_index) \
    X(ov_preprocess_preprocess_steps_convert_element_type)    \
    X(ov_preprocess_preprocess_steps_free)                    \
    X(ov_preprocess_preprocess_steps_mean_multi_channels)     \
    X(ov_preprocess_preprocess_steps_reverse_channels)        \
    X(ov_preprocess_preprocess_steps_scale_multi_channels)    \
    X(ov_remote_context_create_host_tensor)                   \
    X(ov_remote_context_free)                                 \
    X(ov_tensor_create_from_host_ptr)                         \
    X(ov_tensor_data)                                         \
    X(ov_tensor_free)                                         \
    X(ov_version_free)

struct Api {
    explicit Api(const std::string& library);

#define X(name) decltype(&::name) name;
    PIPELINE_OPENVINO_FUNCTIONS(X)
#undef X

    // Throws `code` with "<what>: <OpenVINO's reason>".
    // `key`: the setting to blame, if there is one.
    void check(ov_status_e status, Errc code, std::string_view what, std::string_view key = {}) const {
        if (status != OK) fail(status, code, what, key);
    }
    [[noreturn]] void fail(ov_status_e status, Errc code, std::string_view what,
                           std::string_view key = {}) const;

    // What `create` put into its T**, owned.
    template <class T, class Create>
    [[nodiscard]] Owned<T> own(void (*free)(T*), Errc code, std::string_view what, Create&& create) const {
        T* raw = nullptr;
        check(create(&raw), code, what);
        return Owned<T>(raw, free);
    }

    // A string that OpenVINO allocated; empty for none.
    [[nodiscard]] std::string take(const char* text) const;
    // The reason of the last failure, as one line.
    [[nodiscard]] std::string reason(ov_status_e status) const;
};

}  // namespace pipeline::openvino
