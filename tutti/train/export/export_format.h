#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
// Version 1 has no checksums.
inline constexpr int64_t kExportVersion = 2;

// CRC32C of the files beside model.json, whose own lines are sealed (checkpoint/sealed_lines.h).
struct ModelChecksums {
  uint32_t graph = 0;   // of graph.pb
  uint32_t header = 0;  // of weights.safetensors: its length and header
  std::map<std::string, uint32_t> tensors = {};
};

// What model.json says.
struct ModelSignature {
  std::map<std::string, ModelValue> inputs = {};
  std::map<std::string, ModelValue> outputs = {};
  int64_t step = 0;
  std::optional<ModelChecksums> checksums = {};  // empty: version 1
};
std::string FormatSignature(const ModelSignature& signature);
// Throws Error: kDataLoss, naming the line, for damage; `path` is for messages.
ModelSignature ParseSignature(const std::string& text, const std::string& path);

// Throws Error unless an exported model can be written to `directory`, as far as can be told
// before: the directory is an exported model, empty or not there, and the one above it can be
// written to.
void CheckExportTarget(checkpoint::FileSystem& files, const std::string& directory);

// Writes the part of the session's graph between `inputs` and `outputs`, with the values that its
// variables have. An exported model that is at `directory` is replaced in one step; anything else
// there is an Error. Throws Error.
void WriteExport(checkpoint::FileSystem& files, const std::string& directory,
                 const std::map<std::string, Output>& inputs,
                 const std::map<std::string, Output>& outputs, Session& session, int64_t step);

}  // namespace tutti
