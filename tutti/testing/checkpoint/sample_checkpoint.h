#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tutti/checkpoint/manifest.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/testing/temporary_directory.h"

// What the tests of this folder share.
namespace tutti::checkpoint {

using testing::TemporaryDirectory;

inline std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}
inline void SetContent(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::vector<NamedTensor> SomeTensors(float first) {
  return {{"conv/kernel", Tensor::Of<float>({2, 3}, {first, 2, 3, 4, 5, 6})},
          {"conv/kernel/m", Tensor::Of<float>({2, 3}, {-first, 0, 0, 1, 1, 1})},
          {"nothing", Tensor(kFloat32, {0, 4})},
          {"global_step", Tensor::Scalar<int64_t>(int64_t(first))},
          {"flags", Tensor::Vector<bool>({true, false, true})}};
}

// Writes a checkpoint of these tensors, each file as a save would.
inline absl::Status SaveCheckpoint(FileSystem& files, ModelDirectory& directory, int64_t step,
                                   const std::vector<NamedTensor>& tensors) {
  TUTTI_ASSIGN_OR_RETURN(const std::string path, directory.Begin(step));
  const std::string shard = "shard-00000.safetensors";
  TUTTI_ASSIGN_OR_RETURN(const StoredShard stored,
                         WriteShard(files, path + "/" + shard, tensors, ShardMetadata(step)));
  Manifest manifest = {.made_by = "test", .step = step, .position = 64 * step, .seed = 7};
  manifest.fingerprint = "0123456789abcdef";
  manifest.data = {{"samples", "60000"}};
  manifest.order = {{"strategy", "local"}};
  manifest.shards = {{shard, stored.bytes, stored.header_crc}};
  for (const StoredTensor& tensor : stored.tensors) {
    const TensorEntry& entry = tensor.entry;
    manifest.tensors.push_back({.name = entry.name,
                                .key = entry.name,
                                .dtype = entry.dtype,
                                .shape = entry.shape,
                                .whole = entry.shape,
                                .slot_of = entry.name.ends_with("/m") ? "conv/kernel" : "",
                                .crc = tensor.crc});
  }
  TUTTI_RETURN_IF_ERROR(
      WriteAndSync(files, path + "/" + std::string(kManifestName), FormatManifest(manifest)));
  return directory.Publish(step);
}

}  // namespace tutti::checkpoint
