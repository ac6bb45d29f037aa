package argument

import (
	"net"
	"strconv"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// CheckAddress checks that an address is HOST:PORT. flag names the address in the error. wildcard
// allows an empty or unspecified host, as a listener may have.
func CheckAddress(flag, address string, wildcard bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return exit.Usagef("%s %q: write it as HOST:PORT, for instance 10.0.0.1:7400", flag, address)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return exit.Usagef("%s %q: the port is a number from 1 to 65535", flag, address)
	}
	if !wildcard && Unspecified(host) {
		return exit.Usagef("%s %q: no client can reach that address; name the host", flag, address)
	}
	return nil
}

// Unspecified reports whether a host means "every address of this machine" to a listener. A caller
// cannot use such a host.
func Unspecified(host string) bool {
	if host == "" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}
