package web

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/show"
)

//go:embed page
var files embed.FS

// answer is what a page has found.
type answer struct {
	page  string // its template
	title string
	data  any
	// download, if set, is sent in place of the page.
	download []byte
	status   int // 0 is 200
}

// frame is what a template gets.
type frame struct {
	Base, Page, Title string
	Role              Role
	Write, Sidekiq    bool
	Now               time.Time
	Data              any
}

// The rights, for templates.
func (f frame) Texts() bool  { return f.Role.Has(Texts) }
func (f frame) Bodies() bool { return f.Role.Has(Bodies) }
func (f frame) Jobs() bool   { return f.Role.Has(Jobs) }
func (f frame) Queues() bool { return f.Role.Has(Queues) }
func (f frame) Locks() bool  { return f.Role.Has(Locks) }

var functions = template.FuncMap{
	"short":  func(s any) string { return shown(120, fmt.Sprint(s)) },
	"text":   func(s any) string { return shown(line, fmt.Sprint(s)) },
	"long":   func(s string) string { return shown(64<<10, s) },
	"number": number[int], "count": number[int64], "sized": sized, "rounded": rounded, "ago": ago, "points": points,
	"escaped": func(id show.Name) string { return url.QueryEscape(id.String()) }, "rate": perSecond, "several": several,
	"utc":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") },
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
}

// pages are the templates, each with the layout around it. They are parsed once, for the first handler: a program that
// imports the package and serves no page does not pay for them when it starts.
var pages = sync.OnceValue(parsePages)

func parsePages() map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, "page/layout.html",
		"page/parts.html"))
	found := make(map[string]*template.Template)
	names, _ := files.ReadDir("page")
	for _, entry := range names {
		name, isPage := strings.CutSuffix(entry.Name(), ".html")
		if isPage && name != "layout" && name != "parts" {
			found[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "page/"+entry.Name()))
		}
	}
	return found
}

// render writes the answer as a page or as JSON.
func (h *handler) render(w http.ResponseWriter, q *request, a answer) {
	status := max(a.status, http.StatusOK)
	var body bytes.Buffer
	kind := "text/html; charset=utf-8"
	var err error
	switch {
	case a.download != nil:
		kind = "application/octet-stream"
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": "body"}))
		body.Write(a.download)
	case q.json:
		kind = "application/json; charset=utf-8"
		err = json.NewEncoder(&body).Encode(exact.FilledLists(a.data))
	default:
		err = h.pages[a.page].ExecuteTemplate(&body, "layout.html", frame{
			Base: h.opts.Path, Page: a.page, Title: a.title, Role: q.role, Write: h.opts.Write,
			Sidekiq: h.sidekiqSeen.Load(), Now: time.Now(), Data: a.data,
		})
	}
	if err != nil {
		f := h.numbered(faultf(http.StatusInternalServerError, "Please report it.", "The page could not be written."),
			err)
		http.Error(w, f.Error()+" "+f.ID, f.Status)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}
