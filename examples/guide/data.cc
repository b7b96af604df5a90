// Shows which samples two workers get, and that they are those that one would get.
#include <tutti/tutti.h>

#include <cstdio>

using namespace tutti;

void PrintBatches(const char* title, const Dataset& dataset) {
  std::printf("%s\n", title);
  auto reader = dataset.Read();
  for (Minibatch batch; reader->Next(&batch);) {
    std::printf("  at %2lld:", (long long)batch.position);
    for (const int32_t id : batch.columns.at("id").values<int32_t>()) std::printf(" %2d", id);
    std::printf("\n");
  }
}

int main() {
  const Dataset samples =
      Dataset::FromTensors({{"id", Tensor::Vector<int32_t>({0, 1, 2, 3, 4, 5, 6, 7})}});
  const Dataset tens = samples.Map([](Columns columns) {
    Tensor ids = columns.at("id").Clone();
    for (int32_t& id : ids.values<int32_t>()) id *= 10;
    return Columns{{"id", ids}};
  });
  const Dataset stream = tens.Shuffle(/*seed=*/7).Repeat(2).Batch(4);
  PrintBatches("one worker", stream);
  PrintBatches("worker 0 of 2", stream.Shard(0, 2));
  PrintBatches("worker 1 of 2", stream.Shard(1, 2));
}
