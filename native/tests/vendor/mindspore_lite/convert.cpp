// For tests: the converter of MindSpore Lite's Python wheel on the command line.
//     convert MODEL.onnx OUTPUT [INPUT_NAME EXTENT...]
// writes OUTPUT.ms.
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "include/api/status.h"
#include "include/api/types.h"
#include "include/registry/converter_context.h"

namespace mindspore {

// The wheel has the class but no header for it: as much of it as is used here.
class MS_API Converter {
public:
    struct Data;

    Converter();
    ~Converter() = default;
    void SetSaveType(ModelType type);
    void SetInputShape(const std::map<std::vector<char>, std::vector<std::int64_t>>& shapes);
    Status Convert(converter::FmkType kind, const std::vector<char>& model, const std::vector<char>& output,
                   const std::vector<char>& weights);

private:
    std::shared_ptr<Data> data_;
};

}  // namespace mindspore

int main(int count, char** arguments) {
    if (count < 3) {
        std::fprintf(stderr, "usage: %s MODEL.onnx OUTPUT [INPUT_NAME EXTENT...]\n", arguments[0]);
        return 2;
    }
    mindspore::Converter converter;
    converter.SetSaveType(mindspore::kMindIR_Lite);
    if (count > 3) {
        std::vector<std::int64_t> shape;
        for (int i = 4; i < count; ++i) shape.push_back(std::stoll(arguments[i]));
        converter.SetInputShape({{mindspore::StringToChar(arguments[3]), shape}});
    }
    const auto status =
        converter.Convert(mindspore::converter::kFmkTypeOnnx, mindspore::StringToChar(arguments[1]),
                          mindspore::StringToChar(arguments[2]), {});
    if (!status.IsOk()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.IsOk() ? 0 : 1;
}
