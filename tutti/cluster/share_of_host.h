#pragma once

#include <string>
#include <vector>

namespace tutti {

// What a task may use of its host.
struct HostCores {
  int usable = 1;  // cores that this process may use at once
  int total = 1;   // of the host, or of the control group that limits it
};
HostCores CountHostCores();

// The cores that one of `beside` tasks computes with, itself included, all of one host and at work
// at the same time. A process that may use every core of the host takes an even share: teams of
// several tasks on the same cores would wait for each other. A launcher that restricted the process
// has divided the cores already, so all that it left are used.
int ShareOfHost(const HostCores& cores, int beside);

// How many of `addresses` ("host:port") have the host of `own`. The names and addresses of a host
// for itself (localhost, 127.0.0.1, [::1]) are one host.
int CountOfHost(const std::vector<std::string>& addresses, const std::string& own);

}  // namespace tutti
