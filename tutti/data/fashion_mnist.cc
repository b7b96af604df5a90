#include "tutti/data/fashion_mnist.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "tutti/base/status.h"
#include "tutti/data/idx.h"

namespace tutti {
namespace {

constexpr const char* kPackageFolder = "/usr/share/datasets/fashion-mnist";
constexpr int64_t kSide = 28;
constexpr int kClasses = 10;

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// The path of `name` or `name`.gz in `folder`; empty when neither is there.
std::string FileIn(const std::string& folder, const std::string& name) {
  for (const char* ending : {".gz", ""}) {
    const std::string path = fmt::format("{}/{}{}", folder, name, ending);
    if (IsFile(path)) return path;
  }
  return "";
}

std::string RequireFileIn(const std::string& folder, const std::string& name) {
  const std::string path = FileIn(folder, name);
  if (path.empty()) {
    ThrowIfError(
        NotFound("{}/{}.gz: no such file, nor without .gz; Fashion-MNIST is four files, as the "
                 "Debian package dataset-fashion-mnist installs them",
                 folder, name));
  }
  return path;
}

LabeledImages LoadPart(const std::string& folder, const std::string& part) {
  const std::string image_path = RequireFileIn(folder, part + "-images-idx3-ubyte");
  const std::string label_path = RequireFileIn(folder, part + "-labels-idx1-ubyte");
  const Tensor images = ReadIdx(image_path);
  if (images.dtype() != kUInt8 ||
      !images.shape().CompatibleWith(Shape{kUnknownDim, kSide, kSide})) {
    ThrowIfError(DataLoss("{}: holds {} {}; expected uint8 [?, {}, {}]", image_path,
                          NameOf(images.dtype()), images.shape().ToString(), kSide, kSide));
  }
  const int64_t count = images.shape()[0];
  const Tensor labels = ReadIdx(label_path);
  if (labels.dtype() != kUInt8 || labels.shape() != Shape{count}) {
    ThrowIfError(DataLoss("{}: holds {} {}; expected uint8 [{}], one label for each image of {}",
                          label_path, NameOf(labels.dtype()), labels.shape().ToString(), count,
                          image_path));
  }
  LabeledImages result{images.Reshape({count, kSide, kSide, 1}), Tensor(kInt32, {count})};
  for (int64_t i = 0; i < count; ++i) {
    const int label = labels.data<uint8_t>()[i];
    if (label >= kClasses) {
      ThrowIfError(DataLoss("{}: label {} of image {} is out of range; expected 0 to {}",
                            label_path, label, i, kClasses - 1));
    }
    result.labels.data<int32_t>()[i] = label;
  }
  return result;
}

}  // namespace

std::string FindFashionMnist() {
  constexpr const char* kFirstFile = "train-images-idx3-ubyte";
  if (const char* data = std::getenv("TUTTI_DATA"); data != nullptr && *data != '\0') {
    for (const std::string& folder : {std::string(data), fmt::format("{}/fashion-mnist", data)}) {
      if (!FileIn(folder, kFirstFile).empty()) return folder;
    }
    ThrowIfError(
        NotFound("TUTTI_DATA is {}, but neither it nor its subfolder fashion-mnist holds {}.gz; "
                 "set it to the folder that does, or unset it to use {}",
                 data, kFirstFile, kPackageFolder));
  }
  if (!FileIn(kPackageFolder, kFirstFile).empty()) return kPackageFolder;
  ThrowIfError(
      NotFound("Fashion-MNIST was not found in {}; install it with `apt-get install "
               "dataset-fashion-mnist`, or set TUTTI_DATA to the folder that holds {}.gz",
               kPackageFolder, kFirstFile));
  return "";
}

FashionMnist LoadFashionMnist(const std::string& folder) {
  const std::string from = folder.empty() ? FindFashionMnist() : folder;
  return {LoadPart(from, "train"), LoadPart(from, "t10k")};
}

}  // namespace tutti
