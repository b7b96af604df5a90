#pragma once

namespace tutti {

// `tutti host-agent`: runs one task on this host for a launcher on another one, which has started
// it by ssh (remote_task.h). Listens at the address that ssh came to (SSH_CONNECTION), or loopback,
// and `port`, says so on stdout, and takes the command from stdin. The task gets the port as an
// open descriptor. Ends the task when the launcher goes away, or has not given a sign of life for
// kAliveSeconds: by SIGTERM, and by SIGKILL 2 s later. Returns the task's exit code.
int RunHostAgent(int port);

}  // namespace tutti
