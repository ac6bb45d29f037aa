package links

import "fmt"

// The addresses of namespaces are in 198.18.0.0/15, which is reserved for tests of networks (RFC
// 2544) and not routed.
const (
	subnetFormat = "198.18.77.%d"
	subnetBits   = 24
	clientsIP    = "198.18.77.254"
	bridge       = Prefix + "br"
	// maxServers bounds the number of servers, so that addresses and names are valid.
	maxServers = 64
)

// ip returns the address of a host.
func ip(h Host) string {
	if h == Clients {
		return clientsIP
	}
	return fmt.Sprintf(subnetFormat, int(h)+1)
}

// hostOf returns the host whose address ends with the given byte. ok reports whether there is such
// a host.
func hostOf(last byte, servers int) (h Host, ok bool) {
	switch {
	case last == 254:
		return Clients, true
	case last >= 1 && int(last) <= servers:
		return Host(last - 1), true
	default:
		return 0, false
	}
}

// namespace returns the name of a server's namespace.
func namespace(h Host) string { return fmt.Sprintf("%s%d", Prefix, int(h)+1) }

// veth returns the name of the bridge's end of a server's virtual cable.
func veth(h Host) string { return fmt.Sprintf("%sv%d", Prefix, int(h)+1) }

// tunnel returns the name of a host's TUN device.
func tunnel(h Host) string {
	if h == Clients {
		return Prefix + "t0"
	}
	return fmt.Sprintf("%st%d", Prefix, int(h)+1)
}

// inside returns the arguments of ip(8) that run a command in the namespace of a host.
func inside(h Host, args ...string) []string {
	if h == Clients {
		return args
	}
	return append([]string{"-n", namespace(h)}, args...)
}
