package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// statusCanceled is the status of a request whose client is gone. Nobody reads it.
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

// httpStatus returns the HTTP status for a gRPC code.
func httpStatus(code codes.Code) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// statusOf returns the status of an error, which may be that of a context, as a gRPC server does.
func statusOf(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	return status.FromContextError(err)
}

// headerText makes a text valid for a header.
func headerText(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
}

// onlyGet refuses all methods but GET.
func onlyGet(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet {
		return true
	}
	w.Header().Set("Allow", http.MethodGet)
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	return false
}

// health reports whether this server serves. As in etcd, exclude names alarms to ignore, and
// unknown names are skipped.
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
	text, _ := json.Marshal(answer) // a map of strings cannot fail
	if err != nil {
		http.Error(w, string(text), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(text) // an error means that the client is gone
}

// version reports the versions of etcd that this server and its cluster stand for.
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
