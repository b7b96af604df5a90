#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tutti/checkpoint/file_system.h"
#include "tutti/client/session.h"
#include "tutti/train/export/exported_model.h"

// The directory of an exported model (docs/formats/exported_model.md): model.json, graph.pb and
// weights.safetensors.
namespace tutti {

inline constexpr const char* kModelFile = "model.json";
inline constexpr const char* kGraphFile = "graph.pb";
inline constexpr const char* kWeightsFile = "weights.safetensors";
inline constexpr int64_t kExportVersion = 1;

// What model.json says.
struct ModelSignature {
  std::map<std::string, ModelValue> inputs = {};
  std::map<std::string, ModelValue> outputs = {};
  int64_t step = 0;
};
std::string FormatSignature(const ModelSignature& signature);
// Throws Error; `path` is for messages.
ModelSignature ParseSignature(const std::string& text, const std::string& path);

// Writes the part of the session's graph between `inputs` and `outputs`, with the values that its
// variables have. An exported model that is at `directory` is replaced in one step; anything else
// there is an Error. Throws Error.
void WriteExport(checkpoint::FileSystem& files, const std::string& directory,
                 const std::map<std::string, Output>& inputs,
                 const std::map<std::string, Output>& outputs, Session& session, int64_t step);

}  // namespace tutti
