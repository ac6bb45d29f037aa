package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// reply answers in JSON.
func reply(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer) // the caller may be gone
}

// refuse answers with the reason, as a sentence.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(message{Error: why})
}

// read decodes the body of a request, or refuses it.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, "the request is not understood: "+err.Error())
		return false
	}
	return true
}

// sentence returns the text of an error for people, without the names of functions.
func sentence(err error) string {
	var e *kv.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := e.Message
	if text == "" {
		return err.Error()
	}
	if e.Advice != "" && !strings.Contains(text, e.Advice) {
		text += "; " + e.Advice
	}
	return text
}

// unixMillis converts a time for the pages. The zero time is 0.
func unixMillis(t time.Time) int64 {
	if t.IsZero() || t.Unix() <= 0 {
		return 0
	}
	return t.UnixMilli()
}
