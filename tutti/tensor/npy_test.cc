#include "tutti/tensor/npy.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "tutti/base/error.h"
#include "tutti/testing/error_of.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

using ::tutti::testing::ErrorOf;

std::string ParseError(std::string_view bytes) {
  return ErrorOf([&] { ParseNpy(bytes); });
}

// A file of some version with the given header text.
std::string File(std::string header, std::string_view data, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += char(version);
  bytes += '\0';
  for (size_t i = 0; i < (version == 1 ? 2u : 4u); ++i) bytes += char(header.size() >> (8 * i));
  return bytes + header + std::string(data);
}

Tensor Pattern(DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::Zeros(dtype, shape);
  auto* bytes = static_cast<uint8_t*>(tensor.raw());
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    bytes[i] = uint8_t(dtype == kBool ? i % 3 == 0 : i * 37 + 1);
  }
  return tensor;
}

TEST(Npy, EveryTypeAndShapeComesBack) {
  const std::string path = ::testing::TempDir() + "/npy_test.npy";
  for (const DType dtype : kAllDTypes) {
    if (dtype == kBFloat16) continue;
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{2, 0, 3}, Shape{2, 3, 4},
                               Shape{1, 1, 1, 1, 1, 1, 1, 2}}) {
      const Tensor tensor = Pattern(dtype, shape);
      const std::string bytes = NpyBytes(tensor);
      EXPECT_EQ((bytes.size() - tensor.bytes()) % 64, 0);
      EXPECT_TRUE(ParseNpy(bytes).BitwiseEquals(tensor)) << tensor.ToString();
      WriteNpy(path, tensor);
      EXPECT_TRUE(ReadNpy(path).BitwiseEquals(tensor)) << tensor.ToString();
    }
  }
  std::filesystem::remove(path);
}

TEST(Npy, ReadsEveryVersionOrderAndSpelling) {
  const std::string_view six("\0\1\2\3\4\5", 6);
  const Tensor rows = Tensor::Of<uint8_t>({2, 3}, {0, 1, 2, 3, 4, 5});
  const Tensor columns = Tensor::Of<uint8_t>({2, 3}, {0, 2, 4, 1, 3, 5});
  for (const int version : {1, 2, 3}) {
    EXPECT_TRUE(ParseNpy(File("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n", six,
                              version))
                    .BitwiseEquals(rows));
  }
  EXPECT_TRUE(
      ParseNpy(File("{\"shape\":(2L,3L,),'fortran_order':True ,'descr':\"<u1\"}  \n\t", six))
          .BitwiseEquals(columns));
  const Tensor big =
      ParseNpy(File("{'descr': '>i2', 'fortran_order': True, 'shape': (3,), }", six));
  EXPECT_TRUE(big.BitwiseEquals(Tensor::Vector<int16_t>({0x0001, 0x0203, 0x0405})));
}

TEST(Npy, FortranOrderOfThreeDimensions) {
  Tensor tensor = Tensor::Zeros(kInt32, {2, 3, 4});
  std::string data;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) {
        const int32_t value = i * 100 + j * 10 + k;
        tensor.data<int32_t>()[(i * 3 + j) * 4 + k] = value;
        data.append(reinterpret_cast<const char*>(&value), 4);
      }
    }
  }
  EXPECT_TRUE(ParseNpy(File("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4), }", data))
                  .BitwiseEquals(tensor));
}

TEST(Npy, MalformedBytesAreErrorsThatSayWhy) {
  const auto header = [](std::string_view descr, std::string_view shape) {
    return "{'descr': " + std::string(descr) +
           ", 'fortran_order': False, 'shape': " + std::string(shape) + "}";
  };
  const std::string start = "reading .npy bytes: ";
  EXPECT_EQ(ParseError(""), start + "it is no .npy file: it does not start with \"\\x93NUMPY\"");
  EXPECT_EQ(ParseError("\x93NUMPY\x01"), start + "the header is truncated");
  EXPECT_EQ(ParseError(File(header("'<f4'", "()"), "", 4)),
            start + "it has .npy version 4.0; expected 1.0, 2.0 or 3.0");
  EXPECT_EQ(ParseError(File(header("'<f4'", "(2,)"), "1234567")),
            start + "float32 [2] needs 8 bytes of data; the file has 7: truncated?");
  EXPECT_EQ(ParseError(File(header("'<f4'", "(2,)"), "123456789")),
            start + "float32 [2] needs 8 bytes of data; the file has 9, too many");
  EXPECT_EQ(ParseError(File(header("'<f4'", "(4611686018427387904,)"), "")),
            start +
                "float32 [4611686018427387904] needs more than 2^63 bytes of data; the file "
                "has 0: truncated?");
  EXPECT_NE(ParseError(File(header("'<f4'", "(4611686018427387904, 8)"), "")).find("passes 2^63"),
            std::string::npos);
  EXPECT_NE(ParseError(File(header("'<f4'", "(1,1,1,1,1,1,1,1,1)"), "1234"))
                .find("at most 8 are allowed"),
            std::string::npos);
  EXPECT_NE(ParseError(File(header("'<c8'", "()"), "12345678")).find("NumPy's type '<c8'"),
            std::string::npos);
  EXPECT_NE(ParseError(File(header("'<V2'", "()"), "12")).find("a bfloat16 array to float32"),
            std::string::npos);
  EXPECT_NE(ParseError(File(header("[('a', '<f4')]", "()"), "")).find("records"),
            std::string::npos);
  EXPECT_NE(ParseError(File(header("'|b1'", "()"), "\x02")).find("element 0 of the bool data is 2"),
            std::string::npos);
  EXPECT_NE(ParseError(File("{'descr': '<f4', 'fortran_order': False}", "")).find("no \"shape\""),
            std::string::npos);
  EXPECT_NE(ParseError(File("{'descr': '<f4', 'descr': '<f4'}", "")).find("a second key"),
            std::string::npos);
  EXPECT_NE(ParseError(File("{'x': '<f4'}", "")).find("an unknown key \"x\""), std::string::npos);
  EXPECT_NE(ParseError(File(header("'<f4'", "(-1,)"), "")).find("expected a dimension"),
            std::string::npos);
  EXPECT_NE(ParseError(File(header("'<f4'", "3"), "")).find("expected '(', found '3'"),
            std::string::npos);
  EXPECT_NE(ParseError(File("{'descr", "")).find("expected a string with its end"),
            std::string::npos);
  EXPECT_NE(ParseError(File(header("'<f4'", "()") + "x", "1234")).find("nothing after '}'"),
            std::string::npos);
}

TEST(Npy, DamagedBytesNeverCrash) {
  const int rounds = testing::SweepCount(20'000, 2'000'000);
  std::mt19937_64 random(7);
  const std::string valid = NpyBytes(Pattern(kFloat32, {2, 3}));
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = valid;
    for (uint64_t i = random() % 3; i < 3 && !bytes.empty(); ++i) {
      const size_t at = random() % std::min<size_t>(bytes.size(), 80);
      switch (random() % 4) {
        case 0:
          bytes[at] = char(random());
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.erase(at, 1 + random() % 8);
          break;
        default:
          bytes.insert(at, bytes.substr(at, 1 + random() % 8));
      }
    }
    ParseError(bytes);
  }
}

TEST(Npy, FilesThatCannotBeHadAreErrorsThatNameThem) {
  EXPECT_EQ(ErrorOf([] { ReadNpy("/no/such/file.npy"); }),
            "reading \"/no/such/file.npy\": No such file or directory");
  EXPECT_EQ(ErrorOf([] { ReadNpy("/tmp"); }), "reading \"/tmp\": it is no regular file");
  EXPECT_EQ(ErrorOf([] { WriteNpy("/no/such/file.npy", Tensor::Scalar(1.0f)); }),
            "writing \"/no/such/file.npy\": No such file or directory");
  EXPECT_NE(ErrorOf([] { NpyBytes(Tensor::Zeros(kBFloat16, {2})); }).find("Cast it to float32"),
            std::string::npos);
  EXPECT_NE(ErrorOf([] { NpyBytes(Tensor()); }).find("invalid tensor"), std::string::npos);
}

// NumPy itself reads what we write, and we read what it writes.
// Of the environment that scripts/install-python makes.
std::string PythonWithNumPy() {
  const char* const folder = std::getenv("TUTTI_PYTHON");
  const char* const home = std::getenv("HOME");
  const std::string python =
      folder != nullptr ? folder
                        : std::string(home != nullptr ? home : "") + "/.cache/tutti/python";
  return python + "/bin/python";
}

TEST(Npy, AgreesWithNumPy) {
  const std::string python = PythonWithNumPy();
  if (!std::filesystem::exists(python)) {
    GTEST_SKIP() << python << " is not there; scripts/install-python makes it";
  }
  const std::string folder = ::testing::TempDir() + "/npy_with_numpy";
  std::filesystem::create_directories(folder);
  for (const DType dtype : kAllDTypes) {
    if (dtype == kBFloat16) continue;
    WriteNpy(folder + "/" + std::string(NameOf(dtype)) + ".npy", Pattern(dtype, {3, 2, 4}));
  }
  {
    std::ofstream script(folder + "/convert.py");
    script << "import glob, os, sys, numpy as np\n"
              "for path in glob.glob(sys.argv[1] + '/*.npy'):\n"
              "    a = np.load(path)\n"
              "    name = os.path.basename(path)[:-4]\n"
              "    assert a.dtype == np.dtype(name) and a.shape == (3, 2, 4), path\n"
              "    np.save(path + '.c', a)\n"
              "    np.save(path + '.f', np.asfortranarray(a))\n"
              "    np.save(path + '.b', a.astype(a.dtype.newbyteorder('>')))\n"
              "    with open(path + '.v3.npy', 'wb') as f:\n"
              "        np.lib.format.write_array(f, a, version=(3, 0))\n";
  }
  const std::string command = python + " " + folder + "/convert.py " + folder;
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const DType dtype : kAllDTypes) {
    if (dtype == kBFloat16) continue;
    for (const char* suffix : {"", ".c.npy", ".f.npy", ".b.npy", ".v3.npy"}) {
      const std::string path = folder + "/" + std::string(NameOf(dtype)) + ".npy" + suffix;
      EXPECT_TRUE(ReadNpy(path).BitwiseEquals(Pattern(dtype, {3, 2, 4}))) << path;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti
