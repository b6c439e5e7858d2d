import type { Sampling } from './api';

export type Theme = 'system' | 'light' | 'dark';

export interface Field {
  name: keyof Sampling;
  label: string;
  hint: string;
  min: number;
  max?: number;
  step: number | 'any';
}

export const kFields: Field[] = [
  { name: 'temperature', label: 'Temperature', hint: '0: always the likeliest token', min: 0, step: 'any' },
  { name: 'top_p', label: 'Top p', hint: 'the likeliest tokens that together have this probability', min: 0, max: 1, step: 'any' },
  { name: 'top_k', label: 'Top k', hint: 'this many of the likeliest tokens; 0: all', min: 0, step: 1 },
  { name: 'min_p', label: 'Min p', hint: 'tokens at least this likely beside the likeliest', min: 0, max: 1, step: 'any' },
  { name: 'max_tokens', label: 'Max tokens', hint: 'where an answer ends at the latest', min: 1, step: 1 },
  { name: 'seed', label: 'Seed', hint: 'the same seed and question give the same answer', min: 0, step: 1 },
];

const kPlace = 'quipu.settings';

function kept(): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(kPlace) ?? '{}');
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** What the user set; kept in this browser. An absent number means the server's own default. */
class Settings {
  theme = $state<Theme>('system');
  key = $state('');
  model = $state('');
  system = $state('');
  sampling = $state<Sampling>({});

  constructor() {
    const values = kept();
    if (values.theme === 'light' || values.theme === 'dark') this.theme = values.theme;
    for (const name of ['key', 'model', 'system'] as const) {
      const value = values[name];
      if (typeof value === 'string') this[name] = value;
    }
    const sampling = values.sampling as Sampling | undefined;
    for (const { name } of kFields) {
      const value = sampling?.[name];
      if (typeof value === 'number' && Number.isFinite(value)) this.sampling[name] = value;
    }
  }

  save(): void {
    const { theme, key, model, system, sampling } = this;
    try {
      localStorage.setItem(kPlace, JSON.stringify({ theme, key, model, system, sampling }));
    } catch {
      // A browser that keeps nothing still has them until the page is closed.
    }
  }
}

export const settings = new Settings();
