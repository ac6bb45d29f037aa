package gateway

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/callspans"
)

const (
	// metadataPrefix is the prefix of headers that become metadata.
	metadataPrefix = "Grpc-Metadata-"
	// ofGateway is in the metadata of every call of a gateway. It tells a service that the
	// connection's certificate names no user, as in etcd, where the gateway calls with a
	// certificate of its own.
	ofGateway = "grpcgateway-accept"
)

// contextOf returns the context of the call for a request: with its client's address, and the
// values of its headers.
func contextOf(r *http.Request) (context.Context, context.CancelFunc, error) {
	ctx := peer.NewContext(r.Context(), peerOf(r))
	md := metadata.MD{}
	for name, values := range r.Header {
		name, is := strings.CutPrefix(name, metadataPrefix)
		switch {
		case is && name != "":
			md[strings.ToLower(name)] = values
		case !is && (name == "Authorization" || slices.Contains(callspans.Fields, strings.ToLower(name))):
			md[strings.ToLower(name)] = values
		}
	}
	md.Set(ofGateway, "application/json")
	ctx = metadata.NewIncomingContext(ctx, md)
	if text := r.Header.Get("Grpc-Timeout"); text != "" {
		limit, ok := parseTimeout(text)
		if !ok {
			return nil, nil, status.Errorf(codes.InvalidArgument, "invalid grpc-timeout: %s", text)
		}
		if limit != 0 {
			ctx, cancel := context.WithTimeout(ctx, limit)
			return ctx, cancel, nil
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel, nil
}

// peerOf returns the caller's address.
func peerOf(r *http.Request) *peer.Peer {
	p := &peer.Peer{Addr: address(r.RemoteAddr)}
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		p.Addr = net.TCPAddrFromAddrPort(at)
	}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS, CommonAuthInfo: credentials.CommonAuthInfo{
			SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	return p
}

// address is an address without a port.
type address string

// Network implements net.Addr.
func (address) Network() string { return "http" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

var units = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// parseTimeout parses a timeout as etcd's gateway does: a whole number, and a unit. 0 means none,
// and a negative one has passed. A timeout that does not fit is the longest possible.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 {
		return 0, false
	}
	n, err := strconv.ParseInt(text[:len(text)-1], 10, 64)
	unit := units[text[len(text)-1]]
	switch {
	case err != nil || unit == 0:
		return 0, false
	case n < 0:
		return -1, true
	case n > int64(math.MaxInt64/unit):
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}
