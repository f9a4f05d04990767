import { launch } from '../node-contest.mjs';

launch(new URL('contestant.js', import.meta.url));
