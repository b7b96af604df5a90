#pragma once

#include <string_view>

// What a rendezvous key tells (compile/partition.cc writes it): "SOURCE;DESTINATION;NAME", with
// full names of devices.
namespace tutti {

inline std::string_view SourceOf(std::string_view key) { return key.substr(0, key.find(';')); }

inline std::string_view DestinationOf(std::string_view key) {
  const size_t first = key.find(';');
  if (first == key.npos) return {};
  key.remove_prefix(first + 1);
  return key.substr(0, key.find(';'));
}

// "/job:ps/task:1" of "/job:ps/task:1/cpu:0".
inline std::string_view TaskOfDevice(std::string_view device) {
  return device.substr(0, device.rfind('/'));
}

}  // namespace tutti
