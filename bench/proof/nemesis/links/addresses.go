package links

import "fmt"

// The addresses of namespaces lie in 198.18.0.0/15, which is set aside for the testing of networks
// (RFC 2544) and not routed.
const (
	subnetFormat = "198.18.77.%d"
	subnetBits   = 24
	clientsIP    = "198.18.77.254"
	bridge       = Prefix + "br"
	// maxServers keeps addresses and names within bounds.
	maxServers = 64
)

// ip is the address of a host.
func ip(h Host) string {
	if h == Clients {
		return clientsIP
	}
	return fmt.Sprintf(subnetFormat, int(h)+1)
}

// hostOf is the host with an address whose last byte is given; ok says whether there is one.
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

// namespace is the name of a server's namespace.
func namespace(h Host) string { return fmt.Sprintf("%s%d", Prefix, int(h)+1) }

// veth is the name of a server's end of the cable at the bridge.
func veth(h Host) string { return fmt.Sprintf("%sv%d", Prefix, int(h)+1) }

// tunnel is the name of a host's TUN device.
func tunnel(h Host) string {
	if h == Clients {
		return Prefix + "t0"
	}
	return fmt.Sprintf("%st%d", Prefix, int(h)+1)
}

// inside is the arguments of ip for a command in the namespace of a host.
func inside(h Host, args ...string) []string {
	if h == Clients {
		return args
	}
	return append([]string{"-n", namespace(h)}, args...)
}
