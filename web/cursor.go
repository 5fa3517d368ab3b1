package web

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
)

// overviewCursor is the list that the cursors of the overview belong to.
const overviewCursor = "queues"

// cursor is a place in a list, for a link. It knows its list, so that it cannot be used in another.
func (h *handler) cursor(list string, at int) string {
	return base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(h.listMark(list), uint64(max(at, 0))))
}

func (h *handler) listMark(list string) []byte {
	sum := sha256.Sum256([]byte(h.opts.Prefix + "\n" + list))
	return sum[:6]
}

// openFirst is the cure for a cursor that cannot be used.
const openFirst = "Open the first page."

// readCursor is the place that a cursor of this list names; the begin where there is none.
func (h *handler) readCursor(text, list string) (int, error) {
	if text == "" {
		return 0, nil
	}
	mark := string(h.listMark(list))
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) <= len(mark) {
		return 0, faultf(http.StatusBadRequest, openFirst, "The cursor in the address is not valid.")
	}
	at, n := binary.Uvarint(raw[len(mark):])
	switch {
	case n != len(raw)-len(mark) || at > 1<<40:
		return 0, faultf(http.StatusBadRequest, openFirst, "The cursor in the address is not valid.")
	case string(raw[:len(mark)]) != mark:
		return 0, faultf(http.StatusBadRequest, openFirst, "The cursor in the address is one of another list.")
	}
	return int(at), nil
}
