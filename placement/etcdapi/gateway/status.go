package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// statusCanceled is that of a request whose client is gone. It is not read.
const statusCanceled = 499

var statuses = map[codes.Code]int{
	codes.OK: http.StatusOK, codes.Canceled: statusCanceled,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.Unauthenticated:    http.StatusUnauthorized,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
}

// httpStatus is the status of HTTP for one of gRPC.
func httpStatus(code codes.Code) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// statusOf is the status of an error, which a service may have from a context, as a gRPC server
// tells it.
func statusOf(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	return status.FromContextError(err)
}

// headerText is text as a header may have it.
func headerText(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
}

// onlyGet refuses all other methods.
func onlyGet(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet {
		return true
	}
	w.Header().Set("Allow", http.MethodGet)
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	return false
}

// health says whether this server serves. As in etcd, exclude names alarms that do not matter, and
// names that there are not are overlooked.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	if !onlyGet(w, r) {
		return
	}
	answer := struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}{Health: "true"}
	query := r.URL.Query()
	excluded := make(map[string]bool)
	for _, alarm := range query["exclude"] {
		excluded[alarm] = true
	}
	ctx := peer.NewContext(r.Context(), peerOf(r))
	err := h.config.Healthy(ctx, query.Get("serializable") == "true", excluded)
	if err != nil {
		answer.Health, answer.Reason = "false", status.Convert(err).Message()
	}
	text, _ := json.Marshal(answer) // of strings
	if err != nil {
		http.Error(w, string(text), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(text) // the client is gone
}

// version tells the versions of etcd that this server and its cluster stand for.
func (h *Handler) version(w http.ResponseWriter, r *http.Request) {
	if !onlyGet(w, r) {
		return
	}
	server, cluster, storage := h.config.Versions()
	text, _ := json.Marshal(struct {
		Server  string `json:"etcdserver"`
		Cluster string `json:"etcdcluster"`
		Storage string `json:"storage"`
	}{server, cluster, storage})
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}
