package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HasCap says whether this thread has a capability in effect (unix.CAP_…).
func HasCap(bit uint) (bool, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false, fmt.Errorf("read capabilities: %w", err)
	}
	return data[bit/32].Effective&(1<<(bit%32)) != 0, nil
}
