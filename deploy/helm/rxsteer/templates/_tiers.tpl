{{/* The tiers of nodes as a list of {suffix, mode, canary}; halting overrules all modes. */}}
{{- define "rxsteer.tiers" -}}
- {suffix: "", canary: false, mode: {{ .Values.halt | ternary "off" .Values.mode | quote }}}
{{- if .Values.canary.enabled }}
- {suffix: "-canary", canary: true, mode: {{ .Values.halt | ternary "off" .Values.canary.mode | quote }}}
{{- end }}
{{- end }}

{{- define "rxsteer.labels" -}}
app.kubernetes.io/name: rxsteer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* rxsteer.yaml of a tier: {root, tier}. A tier that is off names no device, so that none can be on. */}}
{{- define "rxsteer.config" -}}
{{- $c := merge (dict "mode" .tier.mode "on_stop" .root.Values.onStop) .root.Values.config -}}
{{- if ne .tier.mode "off" }}{{ $_ := set $c "devices" .root.Values.devices }}{{ end -}}
{{- if and (eq .tier.mode "auto") (not .root.Values.devices) }}{{ fail "mode auto writes only devices that are named: give devices" }}{{ end -}}
{{ toYaml $c }}
{{- end }}
